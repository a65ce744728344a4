"""Savepoints of real checkpoints of every version of Spark: whole, interrupted at every write, deduplicated, damaged, deleted."""

import errno
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.upgrade.checkpoint_archives import ARCHIVES, MemoryFiles, content_of

from penstock.checkpoint import savepoint as saved
from penstock.checkpoint.act_record import Checksum
from penstock.checkpoint.copying import copy_checkpoint
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.hadoop_checksum import checksum_file
from penstock.checkpoint.savepoint import LedgerPoint, Savepoint
from penstock.core.model import BatchId, LedgerId, Nonce, PipelineName, Position, QueryId
from penstock.errors import CheckpointDamaged, Failed, Refused, Usage

GOLDEN = Path(__file__).with_name("golden")
ROCKSDB = "spark-4.3-unique"
BY_NAME = pytest.mark.parametrize("archive", ARCHIVES[:: len(ARCHIVES) // 4], ids=lambda path: path.name.removesuffix(".tar.xz"))


def made(place: MemoryFiles | LocalFiles, name: str, source: MemoryFiles | LocalFiles, *, at_ms: int = 1) -> Savepoint:
    copied = saved.copy_into(place, name, source)
    point = LedgerPoint(
        pipeline=PipelineName("flights"),
        ledger_id=LedgerId("8d969eef6ecad3c29a3a629280e686cf"),
        position=Position(12),
        nonce=Nonce("00112233aabbccdd"),
        query_id=copied.query_id,
        batch_id=copied.batch_id,
        totals={},
    )
    one = Savepoint(name=name, point=point, checkpoint="memory", created_at_ms=at_ms, files=copied.files)
    saved.seal(place, one)
    return one


def archived(name: str) -> MemoryFiles:
    [archive] = [path for path in ARCHIVES if path.name.startswith(f"{name}.")]
    return MemoryFiles(content_of(archive))


@BY_NAME
def test_a_savepoint_is_a_copy_with_checksums(archive: Path) -> None:
    source, place, copy = MemoryFiles(content_of(archive)), MemoryFiles({}), MemoryFiles({})
    one = made(place, "a", source)
    copy_checkpoint(source, copy)
    assert {
        name.removeprefix("a/checkpoint/"): data for name, data in place.content.items() if "checkpoint/" in name
    } == copy.content
    assert list(saved.problems(place, one)) == []
    assert saved.savepoints_in(place) == (one,)
    assert one.files.keys() == copy.content.keys()


def test_an_interrupted_savepoint_does_not_exist_and_is_finished_by_another_try() -> None:
    source, whole = archived("spark-4.3-unique"), MemoryFiles({})
    one = made(whole, "a", source)
    for writes in range(1, len(one.files) + 2):
        place = MemoryFiles({}, writes=writes)
        with pytest.raises(KeyboardInterrupt):
            made(place, "a", source)
        assert saved.savepoints_in(place) == ()
        place.writes = None
        assert made(place, "a", source) == one
        assert place.content == whole.content


def test_files_of_the_savepoint_before_are_linked_and_outlive_it(tmp_path: Path) -> None:
    source, place = archived("spark-4.3-aggregation"), LocalFiles(tmp_path)
    newest = source.content.pop("commits/8")
    first = made(place, "first", source)
    source.content["commits/8"] = newest
    copied = saved.copy_into(place, "second", source)
    linked = Counter(path.stat().st_nlink for path in (tmp_path / "second").rglob("*") if path.is_file())
    assert copied.new_files < len(copied.files) / 2
    assert linked[2] == len(copied.files) - copied.new_files
    saved.delete(place, "second")
    second = made(place, "second", source, at_ms=2)
    assert saved.delete(place, "first") == len([*first.files, "savepoint.json"])
    assert not (tmp_path / "first").exists()
    assert list(saved.problems(place, second)) == []


def test_a_damaged_file_of_the_savepoint_before_is_not_linked(tmp_path: Path) -> None:
    source, place = archived("spark-4.3-files"), LocalFiles(tmp_path)
    first = made(place, "first", source)
    damaged = tmp_path / "first" / "checkpoint" / "offsets" / "7"
    damaged.write_bytes(damaged.read_bytes().replace(b"7", b"6"))
    second = made(place, "second", source, at_ms=2)
    assert list(saved.problems(place, second)) == []
    assert next(saved.problems(place, first)) == "first/checkpoint/offsets/7 is not what was copied"
    with pytest.raises(CheckpointDamaged, match="offsets/7 is not what was copied"):
        saved.require_whole(place, first)


def unpacked(name: str, directory: Path) -> LocalFiles:
    files = LocalFiles(directory)
    for place, data in archived(name).content.items():
        files.write(place, data)
    return files


def tables_below(directory: Path) -> dict[str, Path]:
    return {path.name: path for path in directory.rglob("*.sst")}


def test_tables_of_rocksdb_are_linked_to_the_checkpoint_and_outlive_it(tmp_path: Path) -> None:
    source, place = unpacked(ROCKSDB, tmp_path / "checkpoint"), LocalFiles(tmp_path / "savepoints")
    one = made(place, "a", source)
    tables = tables_below(tmp_path / "savepoints")
    assert tables
    assert all(path.samefile(tables_below(tmp_path / "checkpoint")[name]) for name, path in tables.items())
    others = [path for path in (tmp_path / "savepoints").rglob("*") if path.is_file() and path.name not in tables]
    assert {path.stat().st_nlink for path in others} == {1}
    copied = saved.copy_into(place, "b", source)
    assert copied.files == one.files
    assert copied.new_files == 0
    shutil.rmtree(tmp_path / "checkpoint")
    assert list(saved.problems(place, one)) == []


def test_a_table_of_the_savepoint_before_that_is_no_longer_the_checkpoints_is_read(tmp_path: Path) -> None:
    """As after a restore, or where the first savepoint was copied: the name alone does not tell that the content is the same."""
    source, place = unpacked(ROCKSDB, tmp_path / "checkpoint"), LocalFiles(tmp_path / "savepoints")
    first = made(place, "first", source)
    for path in tables_below(tmp_path / "checkpoint").values():
        other = b"\x00" + path.read_bytes()[1:]
        path.unlink()
        path.write_bytes(other)
        for checksum in path.parent.glob(f".{path.name}.crc"):
            checksum.write_bytes(checksum_file(other))
    second = made(place, "second", source, at_ms=2)
    assert {name for name in first.files if first.files[name] != second.files[name] and name.endswith(".sst")}
    assert list(saved.problems(place, second)) == []
    assert list(saved.problems(place, first)) == []


def test_a_table_that_is_damaged_in_the_checkpoint_makes_no_savepoint(tmp_path: Path) -> None:
    source, place = unpacked(ROCKSDB, tmp_path / "checkpoint"), LocalFiles(tmp_path / "savepoints")
    (name, path), *_ = tables_below(tmp_path / "checkpoint").items()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointDamaged, match=f"{name} does not match its checksum"):
        made(place, "a", source)


def test_where_tables_cannot_be_linked_they_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, place = unpacked(ROCKSDB, tmp_path / "checkpoint"), LocalFiles(tmp_path / "savepoints")

    def refused(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    one = made(place, "a", source)
    assert {path.stat().st_nlink for path in (tmp_path / "savepoints").rglob("*") if path.is_file()} == {1}
    assert list(saved.problems(place, one)) == []


def test_every_difference_is_a_problem() -> None:
    place = MemoryFiles({})
    one = made(place, "a", archived("spark-4.3-files"))
    del place.content["a/checkpoint/sources/0/6"]
    place.content["a/checkpoint/offsets/8"] = b"v1"
    found = list(saved.problems(place, one))
    assert found[0] == "a/checkpoint/sources/0/6 is missing"
    assert "a/checkpoint/offsets/8 does not belong to it" in found


def test_names_are_taken_once_and_are_names() -> None:
    source, place = archived("spark-4.3-files"), MemoryFiles({})
    made(place, "a", source)
    with pytest.raises(Refused, match="has a savepoint 'a' already"):
        made(place, "a", source)
    for name in ("", ".a", "a/b", "..", "é", "a" * 101):
        with pytest.raises(Usage, match="is no name of a savepoint"):
            saved.find(place, name)
    with pytest.raises(Failed, match="has no savepoint 'b': it has a"):
        saved.the(place, "b")


def test_a_manifest_of_version_1_is_read_and_written_as_ever() -> None:
    one = Savepoint(
        name="before-upgrade",
        point=LedgerPoint(
            pipeline=PipelineName("flights"),
            ledger_id=LedgerId("8d969eef6ecad3c29a3a629280e686cf"),
            position=Position(12),
            nonce=Nonce("00112233aabbccdd"),
            query_id=QueryId("5f0c9f0e-0000-4000-8000-000000000001"),
            batch_id=BatchId(7),
            totals={},
        ),
        checkpoint="/state/flights/checkpoint",
        created_at_ms=1_767_225_600_000,
        files={"offsets/7": Checksum(sha256="5f" * 32, size_bytes=300)},
    )
    data = (GOLDEN / "savepoint-1.json").read_bytes()
    assert saved.decode_savepoint(data, where="It") == one
    assert saved.encode_savepoint(one) == data
