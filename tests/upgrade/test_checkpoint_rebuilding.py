"""A checkpoint made again is what Spark itself wrote, as far as a start reads it: for every version of Spark."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.upgrade.checkpoint_archives import ARCHIVES, MemoryFiles, content_of

from penstock.checkpoint import rebuilding
from penstock.checkpoint.acting import carry_out, undo
from penstock.checkpoint.difference import compare
from penstock.checkpoint.inspection import Next
from penstock.checkpoint.rebuilding import FilesByEnd, Rebuilt, plan_rebuild, rebuilt
from penstock.checkpoint.source_log import SourceLog
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.checkpoint.verification import verify_files
from penstock.core.model import Batch, BatchId, SourceName
from penstock.errors import CheckpointDamaged, Refused

FILES = [path for path in ARCHIVES if path.name.endswith("-files.tar.xz")]
IN, NEWEST = SourceName("in"), BatchId(7)


def reading(files: MemoryFiles) -> SparkCheckpoint:
    checkpoint = SparkCheckpoint("unused")
    checkpoint.files = files
    return checkpoint


def batch_of(files: MemoryFiles) -> Batch:
    return reading(files).batch(NEWEST, [IN])


def files_of(files: MemoryFiles) -> FilesByEnd:
    log = SourceLog(files, "sources/0")
    starts = [None, *(f'{{"logOffset":{end}}}' for end in range(8))]
    return {end: log.between(starts[end], starts[end + 1]) or () for end in range(8)}


def made_of(original: MemoryFiles, *, compact_interval: int = 3) -> Rebuilt:
    return rebuilt(
        batch_of(original),
        order=[IN],
        decided_at_ms=1_795_929_217_736,
        files={IN: files_of(original)},
        compact_interval=compact_interval,
    )


@pytest.mark.parametrize("archive", FILES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_the_logs_are_those_that_spark_wrote(archive: Path) -> None:
    original, target = MemoryFiles(content_of(archive)), MemoryFiles({})
    carry_out(target, plan_rebuild(target, made_of(original)))
    found = verify_files(target)
    assert (found.findings, found.outlook.next, found.outlook.batch_id) == ((), Next.NEW, NEWEST + 1)
    assert batch_of(target) == batch_of(original)
    same = [name for name in target.content if name.startswith(("metadata", "sources/"))]
    assert sorted(same) == ["metadata", "sources/0/5.compact", "sources/0/6", "sources/0/7"]
    assert {name: target.content[name] for name in same} == {name: original.content[name] for name in same}
    for batch_id in (6, 7):
        ours, theirs = (files.content[f"offsets/{batch_id}"].split(b"\n") for files in (target, original))
        assert (ours[0], ours[2:]) == (theirs[0], theirs[2:])
    known_more = {one.place for one in compare(original, target).entries if one.second is None}
    assert all(place.startswith(("offsets/", "commits/")) for place in known_more)


@pytest.mark.parametrize(
    ("compact_interval", "names"), [(10, [*map(str, range(8))]), (8, ["7.compact"]), (5, ["4.compact", "5", "6", "7"])]
)
def test_the_log_of_files_is_compacted_where_spark_looks_for_it(compact_interval: int, names: list[str]) -> None:
    original, target = MemoryFiles(content_of(FILES[0])), MemoryFiles({})
    carry_out(target, plan_rebuild(target, made_of(original, compact_interval=compact_interval)))
    assert sorted(target.names("sources/0")) == sorted(names)
    assert batch_of(target) == batch_of(original)
    assert files_of(target) == files_of(original)


def test_what_is_left_of_the_lost_one_is_taken_away_and_can_be_put_back() -> None:
    original = MemoryFiles(content_of(FILES[0]))
    left = {name: data for name, data in original.content.items() if name.startswith(("offsets/", "state/"))}
    target = MemoryFiles({**left, "state/0/0/1.delta": b"", "notes.txt": b"mine"})
    before = dict(target.content)
    carry_out(target, plan_rebuild(target, made_of(original)))
    assert verify_files(target).ok
    assert not target.names("state")
    undo(target, verb="rebuild", yes=True)
    assert {name: data for name, data in target.content.items() if not name.startswith("penstock-acts/")} == before


def test_what_spark_could_not_go_on_from_is_not_written() -> None:
    made, target = made_of(MemoryFiles(content_of(FILES[0]))), MemoryFiles({})
    torn = replace(made, content={**made.content, "offsets/7": b"v1"})
    with pytest.raises(CheckpointDamaged, match="cannot be gone on from"):
        plan_rebuild(target, torn)
    assert target.content == {}


def test_the_beginning_of_a_rate_is_found_by_its_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "_SEARCHED_MS", 20_000)
    folder = Path(__file__).parents[1] / "unit" / "checkpoints" / "rate" / "checkpoint"
    original = SparkCheckpoint(folder)
    newest = original.latest_commit_id()
    assert newest is not None
    entry, batch = original.offsets(newest), original.batch(newest, [IN])
    assert entry is not None
    assert entry.batch_at_ms is not None
    made = rebuilt(batch, order=[IN], decided_at_ms=entry.batch_at_ms + 5_000, files={}, compact_interval=10)
    assert made.content["sources/0/0"] == (folder / "sources" / "0" / "0").read_bytes()
    unknown = replace(batch, offsets=tuple(replace(each, content="origin1:00") for each in batch.offsets))
    with pytest.raises(Refused, match="counts from a beginning that only the lost checkpoint knew"):
        rebuilt(unknown, order=[IN], decided_at_ms=entry.batch_at_ms, files={}, compact_interval=10)


def test_the_first_batch_has_no_entry_before_it() -> None:
    original = reading(MemoryFiles(content_of(FILES[0])))
    first = replace(original.batch(NEWEST, [IN]), batch_id=BatchId(0))
    made = rebuilt(first, order=[IN], decided_at_ms=1, files={IN: {}}, compact_interval=10)
    assert [name for name in made.content if not name.startswith("sources/")] == ["offsets/0", "commits/0"]
