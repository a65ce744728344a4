"""What Spark makes of sources with names that come, go and move, over a real checkpoint of two of them: `incoming`, `archive`."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.preflight_world import World

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.commit.identity import recognise
from penstock.commit.summary import after_decision
from penstock.core.model import Batch, BatchId, Decided, Decision, OffsetRange, Position, QueryId, SourceName, Summary
from penstock.errors import OffsetsConflict, SourcesChanged, Usage
from penstock.protocols import Ledger
from penstock.run.named_sources import has_own_name, problems, require_same_keys
from penstock.run.preflight.change import Verdict
from penstock.source.naming import require_nameable
from penstock.spec.pipeline import PipelineSettings

GOLDEN = Path(__file__).parent / "checkpoints"
INCOMING, ARCHIVE, OTHER = (SourceName(name) for name in ("incoming", "archive", "other"))
QUERY = QueryId("query")


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / "named/checkpoint", tmp_path / "c")
    return tmp_path / "c"


def of(batch_id: int, **ends: str | None) -> Batch:
    """A batch with sources that each read one more than before."""
    ranges = tuple(
        OffsetRange(source=SourceName(name), start=start, end=str(int(start or 0) + 1), content=None)
        for name, start in ends.items()
    )
    return Batch(query_id=QUERY, batch_id=BatchId(batch_id), offsets=ranges)


class _Decisions:
    """What a ledger has of decisions, which read these sources, from the newest one backwards."""

    def __init__(self, *newest_first: Batch) -> None:
        self._batches = newest_first

    def newest_first(self) -> Iterator[object]:
        for back, batch in enumerate(self._batches):
            decision = Decision(batch=batch, staged=(), rows_in=0, schema="{}")
            yield SimpleNamespace(position=Position(len(self._batches) - back), body=Decided(decision=decision))


def told(
    root: Path, *sources: SourceName, in_code: bool = False, decisions: Sequence[Batch] = ()
) -> list[tuple[str | None, str]]:
    checkpoint = SparkCheckpoint(root)
    entry = checkpoint.offsets(BatchId(2))
    assert entry is not None
    found = problems(
        cast("Ledger", _Decisions(*decisions)),
        checkpoint,
        entry,
        planned=BatchId(2),
        decided=of(2, incoming="1", archive="1"),
        sources=sources,
        in_code=in_code,
    )
    return [(each.source, each.message) for each in found]


def test_names_come_go_and_move(root: Path) -> None:
    assert told(root, INCOMING, ARCHIVE) == told(root, ARCHIVE, INCOMING) == told(root, ARCHIVE, OTHER, INCOMING) == []
    assert told(root, ARCHIVE) == told(root, ARCHIVE, OTHER) == []
    [(name, message)] = told(root, ARCHIVE, OTHER, in_code=True)
    assert (name, "if it is the same under another name" in message) == (OTHER, True)


def test_a_planned_batch_keeps_its_sources(root: Path) -> None:
    (root / "commits/2").unlink()
    assert told(root, ARCHIVE, INCOMING, OTHER) == []
    [(name, message)] = told(root, ARCHIVE)
    assert (name, "is planned with source incoming, which is gone" in message) == (INCOMING, True)


def test_a_log_of_files_shows_that_a_name_comes_back(root: Path) -> None:
    shutil.copytree(root / "sources/archive", root / "sources/other")
    assert [name for name, _ in told(root, ARCHIVE, INCOMING, OTHER)] == [OTHER]
    (root / "sources/other/2").unlink()  # as starts leave it that planned no batch
    assert told(root, ARCHIVE, INCOMING, OTHER) == []


def test_a_decision_shows_that_a_name_comes_back_however_old_it_is(root: Path) -> None:
    """A source of Kafka has no log of its own."""
    newer = [of(number, archive="1") for number in range(2_000, 0, -1)]
    assert told(root, ARCHIVE, INCOMING, OTHER, decisions=newer) == []
    assert [name for name, _ in told(root, ARCHIVE, INCOMING, OTHER, decisions=[*newer, of(0, other=None)])] == [OTHER]


@pytest.mark.parametrize(
    ("operators", "moves"), [((), True), (("dedupe",), True), (("dedupe", "dedupe"), False), (("symmetricHashJoin",), False)]
)
def test_state_is_known_by_its_place(root: Path, operators: tuple[str, ...], *, moves: bool) -> None:
    for number, name in enumerate(operators):
        (root / f"state/{number}/_metadata").mkdir(parents=True)
        info = {"operatorInfo": {"operatorId": number, "operatorName": name}, "stateStoreInfo": []}
        (root / f"state/{number}/_metadata/metadata").write_text(f"v1\n{json.dumps(info)}")
    assert told(root, INCOMING, OTHER, ARCHIVE) == []
    assert [name for name, _ in told(root, ARCHIVE, INCOMING)] == ([] if moves else [None])


def test_places_and_names_are_told_apart() -> None:
    for case, named in (("named", True), ("itself", False), ("union", False)):
        checkpoint = SparkCheckpoint(GOLDEN / case / "checkpoint")
        entry = checkpoint.offsets(BatchId(1))
        assert entry is not None
        require_same_keys(entry, checkpoint, named=named)
        with pytest.raises(SourcesChanged, match="by name, but" if named else "by their place"):
            require_same_keys(entry, checkpoint, named=not named)
    assert has_own_name(entry, [INCOMING, ARCHIVE])
    assert not has_own_name(entry, [INCOMING])
    assert not has_own_name(entry, [INCOMING, SourceName("incoming#2")])


def recognised(asked: Batch) -> Decision | None:
    decided = Decision(batch=of(0, a=None, b=None), staged=(), rows_in=0, schema="{}")
    summary = after_decision(Summary(), decided, position=Position(2))
    return recognise(asked, summary=summary, decision_of=lambda number: decided if number == 0 else None)


def test_a_file_that_asks_for_names_has_to_migrate(tmp_path: Path) -> None:
    world = World(tmp_path, "files")
    world.change(("sources:", "named_sources: true\nsources:"))
    [change] = world.preflight().changes
    assert (change.part, change.before, change.now, change.verdict) == (
        "named_sources",
        "false",
        "true",
        Verdict.SAFE_WITH_ACTION,
    )
    assert change.action == "Run `penstock checkpoint migrate FILE --yes`."


def test_a_batch_goes_on_with_sources_that_came_and_went() -> None:
    for asked in (of(1, a="1", b="1"), of(1, b="1", a="1"), of(1, a="1", b="1", c=None), of(1, a="1")):
        assert recognised(asked) is None
    for wrong in (of(1, a="1", b="1", c="1"), of(1, a="1", b=None), of(1, a="2", b="1", c=None)):
        with pytest.raises(OffsetsConflict, match="starts at"):
            recognised(wrong)
    assert recognised(of(0, b=None, a=None)) is not None
    with pytest.raises(OffsetsConflict, match="was decided with"):
        recognised(of(0, a=None))


def test_a_source_without_a_record_so_far_is_not_in_the_batch(root: Path) -> None:
    checkpoint = SparkCheckpoint(root)
    batch = checkpoint.batch(BatchId(2), [ARCHIVE, OTHER, INCOMING])
    assert [each.source for each in batch.offsets] == [ARCHIVE, INCOMING]
    with pytest.raises(SourcesChanged):
        checkpoint.batch(BatchId(2), [ARCHIVE])


def test_each_source_of_the_plan_has_a_name_of_its_own() -> None:
    require_nameable([INCOMING, ARCHIVE], {"incoming", "archive", "unused"})
    for order in ([INCOMING, INCOMING], [INCOMING, SourceName("incoming#2")]):
        with pytest.raises(Usage, match="reads source 'incoming' in more than one place"):
            require_nameable(order, {"incoming"})
    with pytest.raises(Usage, match="reads a stream that is not one of `sources`"):
        require_nameable([INCOMING, SourceName("source-2")], {"incoming"})


def test_spark_s_own_setting_is_not_a_second_way(tmp_path: Path) -> None:
    conf = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": True}
    with pytest.raises(Usage, match="is set by a key of its own"):
        PipelineSettings(
            pipeline="p",
            home=tmp_path,
            sources={"a": {"format": "rate"}},
            sinks={"m": {"type": "console"}},
            spark={"conf": conf},
        )
