"""Copies of real checkpoints of every version of Spark, whole and interrupted at every write; and what `diff` says of them."""

from collections import Counter
from pathlib import Path

import pytest
from tests.upgrade.checkpoint_archives import ARCHIVES, MemoryFiles, content_of

from penstock.checkpoint.copying import UNFINISHED, copy_checkpoint
from penstock.checkpoint.difference import compare
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.hadoop_checksum import checksum_name
from penstock.checkpoint.inspection import Next
from penstock.checkpoint.verification import verify_files
from penstock.core.model import BatchId
from penstock.errors import CheckpointDamaged, Refused

BY_NAME = pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))


def spark_sees(files: MemoryFiles) -> dict[str, bytes]:
    return {name: data for name, data in files.content.items() if not name.rpartition("/")[2].startswith(".")}


@BY_NAME
def test_a_copy_goes_on_where_the_original_does(archive: Path) -> None:
    source, target = MemoryFiles(content_of(archive)), MemoryFiles({})
    copied = copy_checkpoint(source, target)
    found, original = verify_files(target), verify_files(source)
    assert (found.findings, found.outlook, found.state_version) == ((), original.outlook, original.state_version)
    assert copied.batch_id == original.outlook.batch_id - 1
    assert spark_sees(target).items() <= source.content.items()
    assert [one.place for one in compare(source, target).entries if not one.place.startswith("state/")] == []


@BY_NAME
def test_a_copy_of_a_running_query_ends_at_the_newest_committed_batch(archive: Path) -> None:
    """The original is as a query leaves it in the middle of a batch: planned, its state written, not committed."""
    running = content_of(archive)
    newest = max(int(name[8:]) for name in running if name.startswith("commits/") and name[8:].isdecimal())
    del running[f"commits/{newest}"], running[f"commits/.{newest}.crc"]
    source, target = MemoryFiles(running), MemoryFiles({})
    copied = copy_checkpoint(source, target)
    found = verify_files(target)
    assert copied.batch_id == newest - 1
    assert (found.ok, found.outlook.next, found.outlook.batch_id) == (True, Next.NEW, newest)


@pytest.mark.parametrize("name", ["spark-3.5-aggregation", "spark-4.1-changelog", "spark-4.3-unique"])
def test_a_copy_that_is_interrupted_does_not_start_and_can_be_finished(name: str) -> None:
    [archive] = [path for path in ARCHIVES if path.name.startswith(f"{name}.")]
    source, whole = MemoryFiles(content_of(archive)), MemoryFiles({})
    files = copy_checkpoint(source, whole).files
    for writes in range(1, files + 1):  # the unreadable metadata is written first
        target = MemoryFiles({}, writes=writes)
        with pytest.raises(KeyboardInterrupt):
            copy_checkpoint(source, target)
        assert target.content["metadata"] == UNFINISHED
        assert verify_files(target).outlook.next is Next.FAIL
        target.writes = None
        copy_checkpoint(source, target)
        assert target.content == whole.content


def test_what_an_earlier_attempt_left_is_removed() -> None:
    source = MemoryFiles(content_of(ARCHIVES[0]))
    target = MemoryFiles({"metadata": UNFINISHED, "offsets/99": b"v1", "state/0/0/1.delta": b""})
    whole = MemoryFiles({})
    copy_checkpoint(source, target)
    copy_checkpoint(source, whole)
    assert target.content == whole.content


def test_nothing_is_written_where_something_is() -> None:
    source = MemoryFiles(content_of(ARCHIVES[0]))
    for content in ({"metadata": b'{"id":"x"}'}, {"notes.txt": b"mine"}, {"offsets/0": b"v1"}):
        target = MemoryFiles(dict(content))
        with pytest.raises(Refused, match="memory holds something already"):
            copy_checkpoint(source, target)
        assert target.content == content


def test_what_cannot_be_gone_on_from_is_not_copied() -> None:
    [archive] = [path for path in ARCHIVES if path.name.startswith("spark-4.3-aggregation")]
    content = content_of(archive)
    content["state/0/1/9.delta"] = content["state/0/1/9.delta"][:20]
    target = MemoryFiles({})
    with pytest.raises(CheckpointDamaged, match=r"state/0/1/9\.delta is cut off"):
        copy_checkpoint(MemoryFiles(content), target)
    assert verify_files(target).outlook.next is Next.FAIL


def test_without_a_committed_batch_there_is_nothing_to_copy() -> None:
    content = {name: data for name, data in content_of(ARCHIVES[0]).items() if not name.startswith("commits/")}
    with pytest.raises(Refused, match="no committed batch"):
        copy_checkpoint(MemoryFiles(content), MemoryFiles({}))


def test_a_directory_is_written_whole(tmp_path: Path) -> None:
    source = MemoryFiles(content_of(ARCHIVES[0]))
    target = LocalFiles(tmp_path / "copy")
    copied = copy_checkpoint(source, target)
    assert verify_files(target).ok
    assert sum(1 for path in (tmp_path / "copy").rglob("*") if path.is_file()) == copied.files


def test_a_difference_names_what_each_has() -> None:
    whole = content_of(ARCHIVES[0])
    first, second = MemoryFiles(dict(whole)), MemoryFiles(dict(whole))
    assert compare(first, second).same
    newest = max(BatchId(int(name[8:])) for name in whole if name.startswith("commits/") and name[8:].isdecimal())
    del second.content[f"commits/{newest}"]
    second.content["metadata"] = b'{"id":"0aa1fa1f-9d65-4d4c-8b27-5ba4ef2fb5a6"}'
    found = compare(first, second)
    assert [(one.place, one.second) for one in found.entries] == [
        ("metadata", "query 0aa1fa1f-9d65-4d4c-8b27-5ba4ef2fb5a6"),
        (f"commits/{newest}", None),
    ]
    assert (found.entries[1].first or "").startswith("committed, next watermark ")
    assert [one.first for one in compare(second, first).entries][1] is None


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_state_is_copied_with_its_checksums(archive: Path) -> None:
    source, target = MemoryFiles(content_of(archive)), MemoryFiles({})
    copy_checkpoint(source, target)
    for place in target.content:
        if place.startswith("state/") and "/_metadata/" not in place and not place.endswith(".crc"):
            checksum = checksum_name(place)
            assert target.content.get(checksum) == source.content.get(checksum)


class Running(MemoryFiles):
    """A checkpoint of a query that removes files while they are copied; what of it was read.

    `once`: the first file of these that is read is gone, and there again the next time. `forgets`: its logs lose their entries
    while the state is read.
    """

    def __init__(self, content: dict[str, bytes], *, once: str = "none", forgets: bool = False) -> None:
        super().__init__(content)
        self.reads, self.once, self.forgets = Counter[str](), once, forgets

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        self.reads[name] += 1
        if name.startswith(self.once):
            self.once = "none"
            return None
        if self.forgets and name.endswith(".sst"):
            for gone in [one for one in self.content if one.startswith(("offsets/", "commits/"))]:
                del self.content[gone]
        return super().read(name, start=start, size_bytes=size_bytes)


def of_rocksdb() -> dict[str, bytes]:
    [archive] = [path for path in ARCHIVES if path.name.startswith("spark-4.3-rocksdb.")]
    return content_of(archive)


def test_entries_that_the_query_removes_meanwhile_are_in_the_copy() -> None:
    forgetful, target, whole = Running(of_rocksdb(), forgets=True), MemoryFiles({}), MemoryFiles({})
    copied, expected = (copy_checkpoint(*each) for each in ((forgetful, target), (MemoryFiles(of_rocksdb()), whole)))
    assert (copied, target.content) == (expected, whole.content)


def test_another_attempt_copies_only_tables_that_came_since() -> None:
    source, target, whole = Running(of_rocksdb(), once="sources/"), MemoryFiles({}), MemoryFiles({})
    copied, expected = copy_checkpoint(source, target), copy_checkpoint(MemoryFiles(of_rocksdb()), whole)
    tables = [name for name in target.content if name.endswith(".sst")]
    assert tables
    assert {source.reads[name] for name in tables} == {1}
    assert source.reads["metadata"] == 2, "there were two attempts"
    assert (copied, target.content) == (expected, whole.content)
