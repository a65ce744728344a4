"""What every `BlobStore` must do, on a real server. A subclass named `Test…` needs a fixture `store` on an empty account."""

import logging
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Barrier

import pytest

from penstock.blob import BlobStore, Pending
from penstock.blob.client import requests_to
from penstock.blob.object_file import open_object

HOSTILE = "table/month=%2E%2F/näme with spaces & 100%25+more/part-#1?.parquet"
"""What partition values and partition columns can make of a key."""


def names(store: BlobStore, folder: str = "") -> list[str]:
    return [found.key for found in store.list(folder)]


def uploaded(store: BlobStore, key: str, *parts: bytes, tag: str = "tag") -> tuple[str, list[str]]:
    upload = store.begin(key, tag=tag)
    return upload, [store.put_part(key, upload, number, data) for number, data in enumerate(parts)]


class BlobContract:
    # --- requests

    def test_every_request_is_counted_for_its_store(self, store: BlobStore) -> None:
        def spent(act: Callable[[], object]) -> int:
            before = requests_to(store.url)
            act()
            return requests_to(store.url) - before

        assert spent(lambda: store.put("a", b"x", tag="t")) >= 1
        assert spent(lambda: [store.delete(key) for key in ("b", "c", "d")]) == 3
        assert spent(lambda: [list(store.list()) for _ in range(5)]) >= 5
        with ThreadPoolExecutor(4) as pool:
            assert spent(lambda: list(pool.map(store.get, ["a"] * 20))) >= 20
        listed = store.list()
        next(listed)
        assert requests_to(f"{store.url}/elsewhere") == 0
        assert spent(lambda: None) == 0

    def test_each_operation_takes_as_many_as_it_says(self, store: BlobStore) -> None:
        def spent(act: Callable[[], object]) -> int:
            before = requests_to(store.url)
            act()
            return requests_to(store.url) - before

        each = store.requests_each
        store.put("f/a", b"x", tag="t")
        assert spent(lambda: store.put("f/a", b"x", tag="t")) == each.put
        assert spent(lambda: store.put_if_absent("f/b", b"x", tag="t")) == each.put
        assert spent(lambda: store.get("f/a")) == each.get
        assert spent(lambda: store.get("f/absent")) == 1
        assert spent(lambda: store.head("f/a")) == each.look
        assert spent(lambda: list(store.list("f/"))) == each.list
        assert spent(lambda: list(store.list("f/", limit=1))) == each.list
        upload = store.begin("f/c", tag="t")
        assert spent(lambda: store.begin("f/d", tag="t")) == each.begin
        assert spent(lambda: store.put_part("f/c", upload, 0, b"x")) == each.part
        part = store.put_part("f/c", upload, 0, b"x")
        assert spent(lambda: store.complete("f/c", upload, [part], tag="t")) == each.complete

    # --- objects

    def test_what_was_put_is_there_whole_with_its_tag(self, store: BlobStore) -> None:
        store.put("a/b", b"one", tag="first")
        assert store.get("a/b") == b"one"
        found = store.head("a/b")
        assert found is not None
        assert (found.key, found.size_bytes, found.tag) == ("a/b", 3, "first")
        store.put("a/b", b"three", tag="second")
        assert store.get("a/b") == b"three"
        found = store.head("a/b")
        assert found is not None
        assert (found.size_bytes, found.tag) == (5, "second")

    def test_many_threads_at_once_are_no_reason_for_a_warning(self, store: BlobStore, caplog: pytest.LogCaptureFixture) -> None:
        """Python prints what a library warns of, where nobody set up logging."""
        store.put("a", b"one", tag="tag")
        threads, together = 24, Barrier(24)

        def look(_: int) -> bytes | None:
            store.get("a")
            together.wait()
            return store.get("a")

        with ThreadPoolExecutor(threads) as pool:
            assert list(pool.map(look, range(threads))) == [b"one"] * threads
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []

    def test_what_is_not_there_is_none_and_deleting_it_is_fine(self, store: BlobStore) -> None:
        assert store.get("nowhere") is None
        assert store.head("nowhere") is None
        store.delete("nowhere")
        with pytest.raises(FileNotFoundError):
            store.read("nowhere", start=0, length=1)
        with pytest.raises(FileNotFoundError):
            open_object(store, "nowhere")
        assert names(store) == []
        assert names(store, "folder/") == []

    def test_an_empty_object_is_one(self, store: BlobStore) -> None:
        store.put("empty", b"", tag="t")
        assert store.get("empty") == b""
        assert names(store) == ["empty"]

    def test_deleted_is_gone(self, store: BlobStore) -> None:
        store.put("a", b"1", tag="t")
        store.delete("a")
        assert store.head("a") is None
        assert names(store) == []

    def test_keys_are_taken_literally(self, store: BlobStore) -> None:
        store.put(HOSTILE, b"data", tag="t")
        assert names(store) == [HOSTILE]
        assert store.get(HOSTILE) == b"data"
        upload, parts = uploaded(store, HOSTILE + "2", b"parts")
        store.complete(HOSTILE + "2", upload, parts, tag="t")
        assert store.get(HOSTILE + "2") == b"parts"
        store.delete(HOSTILE)
        assert names(store) == [HOSTILE + "2"]

    def test_a_list_is_in_order_and_keeps_to_its_folder(self, store: BlobStore) -> None:
        keys = [f"f/{number:04d}" for number in range(25)] + ["f/sub/x", "fg", "g/1"]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x", tag="t"), keys))
        assert names(store) == sorted(keys)
        assert names(store, "f/") == sorted(key for key in keys if key.startswith("f/"))
        assert [found.key for found in store.list("f/", limit=3)] == keys[:3]
        assert [found.size_bytes for found in islice(store.list(), 2)] == [1, 1]

    def test_children_are_what_lies_directly_below(self, store: BlobStore) -> None:
        files = [f"state/0/{number}.delta" for number in range(25)]
        with ThreadPoolExecutor(8) as pool:
            keys = [*files, "state/0/name/1.delta", "state/0/name/sub/1", "state/00/x", "metadata", "state/1/%41 ü#?"]
            list(pool.map(lambda key: store.put(key, b"xy", tag="t"), keys))

        def children(folder: str = "") -> dict[str, int]:
            return {found.key: found.size_bytes for found in store.children(folder)}

        assert children() == {"metadata": 2, "state/": 0}
        assert children("state/") == {"state/0/": 0, "state/00/": 0, "state/1/": 0}
        assert children("state/0/") == {**dict.fromkeys(files, 2), "state/0/name/": 0}
        assert children("state/1/") == {"state/1/%41 ü#?": 2}
        assert children("nowhere/") == children("metadata/") == {}

    def test_children_cost_one_request_whatever_lies_deeper(self, store: BlobStore) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: store.put(f"state/{number % 3}/{number}", b"x", tag="t"), range(30)))
        before = requests_to(store.url)
        assert len(list(store.children("state/"))) == 3
        assert requests_to(store.url) == before + 1

    def test_when_an_object_was_written_is_told_alike_by_all(self, store: BlobStore) -> None:
        store.put("a/b", b"x", tag="t")
        found = store.head("a/b")
        assert found is not None
        assert found.modified_ms is not None
        assert abs(found.modified_ms - time.time_ns() // 1_000_000) < 60_000
        assert [one.modified_ms for one in (*store.list(), *store.children("a/"))] == [found.modified_ms] * 2

    def test_a_part_is_read_and_a_file_can_be_sought(self, store: BlobStore) -> None:
        data = bytes(range(256)) * 40
        store.put("bytes", data, tag="t")
        assert store.read("bytes", start=100, length=7) == data[100:107]
        with open_object(store, "bytes") as file:
            file.seek(-10, 2)
            assert file.read() == data[-10:]
            file.seek(3)
            assert file.read(5) == data[3:8]
            assert file.tell() == 8

    # --- conditions

    def test_an_object_is_created_once(self, store: BlobStore) -> None:
        assert store.put_if_absent("once", b"first", tag="1")
        assert not store.put_if_absent("once", b"second", tag="2")
        assert store.get("once") == b"first"
        found = store.head("once")
        assert found is not None
        assert found.tag == "1"

    @pytest.mark.parametrize("writers", [8])
    def test_of_many_writers_one_wins(self, store: BlobStore, writers: int) -> None:
        for number in range(12):
            with ThreadPoolExecutor(writers) as pool:
                won = list(
                    pool.map(lambda me, key=f"race/{number}": store.put_if_absent(key, b"%d" % me, tag=str(me)), range(writers))
                )
            assert sum(won) == 1
            assert store.get(f"race/{number}") == b"%d" % won.index(True)

    # --- uploads

    def test_an_upload_is_invisible_until_it_is_completed(self, store: BlobStore) -> None:
        parts = [b"a" * store.part_bytes, b"b" * 1000]
        upload, told = uploaded(store, "t/file", *parts, tag="mine")
        assert names(store) == []
        assert store.head("t/file") is None
        assert store.get("t/file") is None
        assert store.is_pending("t/file", upload)
        store.complete("t/file", upload, told, tag="mine")
        found = store.head("t/file")
        assert found is not None
        assert (found.size_bytes, found.tag) == (store.part_bytes + 1000, "mine")
        assert store.get("t/file") == b"".join(parts)
        assert names(store) == ["t/file"]
        assert not store.is_pending("t/file", upload)

    def test_another_process_can_complete_it(self, store: BlobStore) -> None:
        upload, told = uploaded(store, "t/file", b"data")
        other: BlobStore = pickle.loads(pickle.dumps(store))
        other.complete("t/file", upload, told, tag="tag")
        assert store.get("t/file") == b"data"

    def test_completing_again_changes_nothing(self, store: BlobStore) -> None:
        upload, told = uploaded(store, "t/file", b"data")
        for _ in range(3):
            store.complete("t/file", upload, told, tag="tag")
            assert store.get("t/file") == b"data"
        assert names(store) == ["t/file"]

    def test_a_late_completion_resurrects_nothing(self, store: BlobStore) -> None:
        upload, told = uploaded(store, "t/file", b"data")
        store.complete("t/file", upload, told, tag="tag")
        store.delete("t/file")
        store.complete("t/file", upload, told, tag="tag")
        assert store.head("t/file") is None
        assert names(store) == []
        assert not store.is_pending("t/file", upload)

    def test_of_many_completions_each_leaves_the_same_object(self, store: BlobStore) -> None:
        for number in range(5):
            key = f"t/{number}"
            upload, told = uploaded(store, key, b"data")
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda _, key=key, upload=upload, told=told: self._completed(store, key, upload, told), range(8)))
            assert store.get(key) == b"data"

    def test_a_part_that_was_sent_again_counts_once(self, store: BlobStore) -> None:
        upload = store.begin("t/file", tag="tag")
        store.put_part("t/file", upload, 0, b"first try")
        told = store.put_part("t/file", upload, 0, b"first try")
        store.complete("t/file", upload, [told], tag="tag")
        assert store.get("t/file") == b"first try"

    def test_two_uploads_of_different_keys_do_not_mix(self, store: BlobStore) -> None:
        one, ones = uploaded(store, "t/one", b"1")
        other, others = uploaded(store, "t/other", b"2")
        store.complete("t/other", other, others, tag="tag")
        store.complete("t/one", one, ones, tag="tag")
        assert (store.get("t/one"), store.get("t/other")) == (b"1", b"2")

    def test_what_was_never_begun_is_not_pending_and_completes_to_nothing(self, store: BlobStore) -> None:
        upload, told = uploaded(store, "t/file", b"data")
        store.complete("t/file", upload, told, tag="tag")
        store.complete("t/never", upload, told, tag="tag")
        assert not store.is_pending("t/never", upload)
        assert store.head("t/never") is None

    def test_an_upload_can_be_found_and_ended(self, store: BlobStore) -> None:
        upload, told = uploaded(store, "t/dead", b"data")
        kept, keeps = uploaded(store, "t/kept", b"data")
        done, dones = uploaded(store, "t/done", b"data")
        store.complete("t/done", done, dones, tag="tag")
        found = {pending.key: pending for pending in store.pending("")}
        if found:  # a store that ends uploads by itself shows none
            assert set(found) == {"t/dead", "t/kept"}
            store.discard(found["t/dead"])
            store.discard(found["t/dead"])
            assert not store.is_pending("t/dead", upload)
            store.complete("t/dead", upload, told, tag="tag")
            assert store.head("t/dead") is None
        store.discard(Pending(key="t/done", upload=done))
        store.complete("t/kept", kept, keeps, tag="tag")
        assert names(store) == ["t/done", "t/kept"]

    def test_nothing_secret_is_shown(self, store: BlobStore) -> None:
        shown = f"{store.url} {store!r}"
        assert "secret" not in shown.lower().replace("secret_access_key", "")
        assert "Key=" not in shown

    @staticmethod
    def _completed(store: BlobStore, key: str, upload: str, told: list[str]) -> None:
        store.complete(key, upload, told, tag="tag")
