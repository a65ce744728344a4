"""A batch is planned in a copy of a checkpoint as Spark itself planned it: for every version of Spark and each kind of state."""

from pathlib import Path

import pytest
from tests.upgrade.checkpoint_archives import ARCHIVES, MemoryFiles, content_of

from penstock.checkpoint.catching_up import CatchUp
from penstock.checkpoint.entries import entry_ids, parse_commit, parse_offsets
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.hadoop_checksum import matches
from penstock.checkpoint.source_log import log_offset, logged_in
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import Batch, BatchId, SourceName
from penstock.errors import Failed


def names_in(files: MemoryFiles, batch_id: int) -> list[SourceName]:
    entry = parse_offsets(files.read(f"offsets/{batch_id}") or b"")
    return [SourceName(f"source{key}") for key in entry.by_key()]


def batch_of(files: MemoryFiles, batch_id: BatchId) -> Batch:
    checkpoint = SparkCheckpoint("unused")
    checkpoint.files = files
    return checkpoint.batch(batch_id, names_in(files, batch_id))


def without(original: MemoryFiles, newest: int) -> MemoryFiles:
    """The checkpoint as it was before batch `newest` was planned, as far as its logs and sources say."""
    later = {f"{log}/{name}" for log in ("offsets", "commits") for name in (newest, f".{newest}.crc")}
    return MemoryFiles({name: data for name, data in original.content.items() if name not in later})


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_batch_is_planned_as_spark_planned_it(archive: Path) -> None:
    original = MemoryFiles(content_of(archive))
    newest = max(entry_ids(original.names("commits")))
    behind = without(original, newest)
    planned = parse_offsets(original.read(f"offsets/{newest}") or b"")
    catch_up = CatchUp(behind, order=names_in(original, newest), named=False)
    catch_up.plan(batch_of(original, BatchId(newest)), decided_at_ms=planned.batch_at_ms or 0)
    assert behind.read(f"offsets/{newest}") == original.read(f"offsets/{newest}")
    with pytest.raises(Failed, match=f"Spark has not computed batch {newest} "):
        catch_up.require_committed(BatchId(newest))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_the_logs_of_sources_get_what_was_read_since(archive: Path) -> None:
    original, target = MemoryFiles(content_of(archive)), MemoryFiles({"state/0/0/1.delta": b"left"})
    newest = BatchId(max(entry_ids(original.names("commits"))))
    names = names_in(original, newest)
    logged = {
        name: [each for each in logged_in(original, f"sources/{place}") if each[0] <= (log_offset(end) or 0)]
        for place, (name, end) in enumerate((each.source, each.end) for each in batch_of(original, newest).offsets)
    }
    last = {name: max(number for number, _ in each) for name, each in logged.items()}
    lists = {name: {last[name]: tuple(file for number, file in each if number == last[name])} for name, each in logged.items()}
    CatchUp(target, order=names, named=False).begin(original, lists, compact_interval=3)
    assert target.read("state/0/0/1.delta") != b"left"
    for place, name in enumerate(names):
        assert sorted(logged_in(target, f"sources/{place}")) == sorted(logged[name])


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_watermark_that_the_batch_is_known_to_have_had_is_planned(archive: Path) -> None:
    original = MemoryFiles(content_of(archive))
    newest = BatchId(max(entry_ids(original.names("commits"))))
    behind, before = without(original, newest), f"commits/{newest - 1}"
    late = (parse_commit(original.read(before) or b"").next_watermark_ms or 0) + 7
    for known in (late - 8, late):
        CatchUp(behind, order=names_in(original, newest), named=False).plan(
            batch_of(original, newest), decided_at_ms=5, watermark_ms=known
        )
        expected = late if known == late else late - 7
        assert parse_offsets(behind.read(f"offsets/{newest}") or b"").watermark_ms == expected
        assert parse_commit(behind.read(before) or b"").next_watermark_ms == expected
        assert behind.read(before) == original.read(before) or known == late
    ids = [parse_commit(files.read(before) or b"").state_ids for files in (behind, original)]
    assert ids[0] == ids[1]
    assert behind.read(f"commits/.{newest - 1}.crc") is None


@pytest.mark.parametrize("name", ["spark-4.3-rocksdb", "spark-4.3-unique", "spark-4.3-join"])
def test_state_of_an_older_savepoint_gets_its_checksums(name: str, tmp_path: Path) -> None:
    archive = next(path for path in ARCHIVES if path.name == f"{name}.tar.xz")
    original = {place: data for place, data in content_of(archive).items() if not place.endswith(".crc")}
    CatchUp(LocalFiles(tmp_path), order=[], named=False).begin(MemoryFiles(original), {}, compact_interval=3)
    state = [path for path in (tmp_path / "state").rglob("*") if path.is_file() and path.suffix != ".crc"]
    assert len(state) > 3
    for path in state:
        assert matches(path.read_bytes(), path.with_name(f".{path.name}.crc").read_bytes()), path
