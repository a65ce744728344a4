"""What only the directory has: temporary files, hard links, disks that fail."""

import errno
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from penstock.core.faults import arm
from penstock.errors import Failed, OutcomeUnknown, Retryable, StoreIgnoresConditions
from penstock.ledger.directory import DirectoryStore
from penstock.ledger.log import LogLedger
from penstock.testing.entries import PIPELINE, chain


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "a" / "ledger")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def temporary(store: DirectoryStore) -> list[Path]:
    return list((Path(store.location) / "tmp").iterdir())


def test_keys_come_in_order_folder_by_folder(store: DirectoryStore) -> None:
    keys = [
        "entries/000000000/000000000999",
        "entries/000000001/000000001000",
        "entries/000000001/000000001001",
        "floor/1",
        "hint",
    ]
    for key in reversed(keys):
        assert store.put_if_absent(key, key.encode())
    assert list(store.keys("entries/")) == keys[:3]
    assert list(store.keys("floor/")) == ["floor/1"]
    assert list(store.keys("nothing/")) == []
    assert [store.get(key) for key in keys] == [key.encode() for key in keys]
    store.delete(keys[1])
    store.delete(keys[1])
    assert list(store.keys("entries/")) == [keys[0], keys[2]]


def test_the_first_one_stays_and_nothing_temporary_is_left(store: DirectoryStore) -> None:
    assert store.put_if_absent("entries/1", b"first")
    assert not store.put_if_absent("entries/1", b"second")
    assert store.get("entries/1") == b"first"
    store.put("hint", b"1")
    store.put("hint", b"2")
    assert store.get("hint") == b"2"
    assert temporary(store) == []


@pytest.mark.parametrize("point", ["directory_write", "directory_sync_file", "directory_sync"])
@pytest.mark.parametrize("kind", ["error", "lost"])
def test_a_failing_disk_fails_the_put_and_is_never_asked_twice(store: DirectoryStore, point: str, kind: str) -> None:
    arm(f"ledger.{point}={kind}")
    with pytest.raises(Failed) as caught:
        store.put_if_absent("entries/1", b"data")
    assert caught.value.remedy
    assert (store.get("entries/1") is not None) is (point == "directory_sync")


@pytest.mark.parametrize(("kind", "lands"), [("error", False), ("lost", True)])
def test_a_link_without_an_answer_is_unknown_or_did_not_happen(store: DirectoryStore, kind: str, lands: bool) -> None:  # noqa: FBT001
    arm(f"ledger.directory_link={kind}")
    with pytest.raises(Retryable) as caught:
        store.put_if_absent("entries/1", b"data")
    assert isinstance(caught.value, OutcomeUnknown) is lands
    assert (store.get("entries/1") is not None) is lands
    assert len(temporary(store)) == 1
    store.sweep()
    assert temporary(store) == []
    assert (store.get("entries/1") is not None) is lands


def test_a_path_that_cannot_be_looked_at_is_told(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="the name is too long"):
        DirectoryStore(tmp_path / ("x" * 300)).put_if_absent("entries/0", b"data")


def test_the_bytes_are_on_the_disk_before_they_get_their_name_and_the_name_before_success(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("entries/0", b"makes the folder")
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def noted_fsync(descriptor: int) -> None:
        steps.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).parent.name}")
        fsync(descriptor)

    def noted_link(source: str, target: str) -> None:
        steps.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "link", noted_link)
    assert store.put_if_absent("entries/1", b"data")
    assert steps == ["fsync tmp", "link", "fsync ledger"]


def test_a_temporary_file_that_stays_is_only_garbage(store: DirectoryStore) -> None:
    arm("ledger.directory_unlink=error")
    assert store.put_if_absent("entries/1", b"data")
    foreign = Path(store.location) / "tmp" / "notes.txt"
    foreign.write_text("not ours")
    store.sweep()
    assert temporary(store) == [foreign]


def test_a_put_whose_temporary_file_was_swept_can_be_tried_again(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def sweep_first(source: str, target: str) -> None:
        store.sweep()
        link(source, target)

    monkeypatch.setattr(os, "link", sweep_first)
    with pytest.raises(Retryable) as caught:
        store.put_if_absent("entries/000000000/1", b"data")
    assert not isinstance(caught.value, OutcomeUnknown)
    monkeypatch.undo()
    assert store.put_if_absent("entries/000000000/1", b"data")


def test_folders_that_hold_nothing_any_more_are_collected_and_come_back(store: DirectoryStore) -> None:
    assert store.put_if_absent("entries/000000000/1", b"data")
    store.delete("entries/000000000/1")
    foreign = Path(store.location) / "spool" / "empty"
    foreign.mkdir(parents=True)
    other = DirectoryStore(Path(store.location))
    other.sweep()
    assert not (Path(store.location) / "entries" / "000000000").exists()
    assert foreign.is_dir()
    with pytest.raises(Retryable):
        store.put_if_absent("entries/000000000/1", b"data")
    assert store.put_if_absent("entries/000000000/1", b"data")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EPERM, StoreIgnoresConditions),
        (errno.EOPNOTSUPP, StoreIgnoresConditions),
        (errno.ENOSPC, Failed),
        (errno.EACCES, Failed),
        (errno.EIO, OutcomeUnknown),
        (errno.ETIMEDOUT, OutcomeUnknown),
    ],
)
def test_what_link_says_is_told_as_what_it_is(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(expected):
        store.put_if_absent("entries/1", b"data")


def test_a_root_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Failed):
        DirectoryStore(tmp_path / "file").put_if_absent("entries/1", b"data")
    with pytest.raises(Failed):
        DirectoryStore(tmp_path / "file").get("entries/1")


def test_a_ledger_directory_removed_while_in_use_is_noticed(tmp_path: Path) -> None:
    ledger = LogLedger(DirectoryStore(tmp_path / "ledger"), pipeline=PIPELINE)
    entries = list(islice(chain(), 3))
    ledger.append(entries[0])
    (tmp_path / "ledger").rename(tmp_path / "elsewhere")
    with pytest.raises(Failed, match="removed while in use"):
        ledger.append(entries[1])
