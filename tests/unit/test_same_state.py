"""Whether a query makes the state that it made: the clock, chance, and changes since, by plans as Spark 4.3 writes them."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.checkpoint.savepoint import LedgerPoint, Savepoint
from penstock.core.model import BatchId, Entry, Generation, Nonce, Position, SourceName
from penstock.errors import Refused
from penstock.observe.batch_record import BatchRecords, SparkRecord
from penstock.run.preflight import description
from penstock.run.preflight.description import RecordedRun, RunDescription, record_run, recorded_run
from penstock.run.same_state import differences, read_beside, require_repeatable
from penstock.run.state_rebuilding import SinceSavepoint, require_adjoining, watermarks_of
from penstock.testing.entries import PIPELINE, QUERY, decided_entry, opened_entry
from penstock.transform.plan import PlanNode, parse_plan

STREAM = "StreamingRelation DataSource(csv), FileSource[in], [n#0, at#1]"
COUNT = "Aggregate [n#0], [n#0, count(1) AS c#2L]"


def plan(*operators: str) -> PlanNode:
    """Operators above each other, the result first."""
    return parse_plan("\n".join(f"{'   ' * (depth - 1)}+- {each}" if depth else each for depth, each in enumerate(operators)))


@pytest.mark.parametrize(
    ("clock", "named"),
    [
        ("current_timestamp()", "current_timestamp()"),
        ("now()", "now()"),
        ("current_date(Some(UTC))", "current_date()"),
        ("date_sub(current_date(Some(Europe/Berlin)), 1)", "current_date()"),
        ("localtimestamp(Some(UTC))", "localtimestamp()"),
        ("current_time(6, Some(UTC))", "current_time()"),
        ("unix_timestamp(current_timestamp(), yyyy-MM-dd HH:mm:ss, Some(UTC), true)", "current_timestamp()"),
    ],
)
def test_state_that_depends_on_the_clock_is_refused(clock: str, named: str) -> None:
    with pytest.raises(Refused) as refused:
        require_repeatable(plan(COUNT, f"Filter (cast(at#1 as date) >= {clock})", STREAM), remedy="")
    assert f"looks at the clock ({named})" in str(refused.value)


def test_timers_of_the_clock_are_refused() -> None:
    for operator in (
        "TransformWithStateInPySpark f(n#0), ProcessingTime",
        "FlatMapGroupsInPandasWithState ProcessingTimeTimeout",
    ):
        with pytest.raises(Refused, match="ProcessingTime"):
            require_repeatable(plan(operator, STREAM), remedy="")


def test_state_that_depends_on_chance_is_refused() -> None:
    with pytest.raises(Refused, match=r"draws at random \(rand\)"):
        require_repeatable(plan(COUNT, "Filter (rand(5) < 0.5)", STREAM), remedy="")


def test_the_clock_above_all_state_changes_no_state() -> None:
    above = "Project [n#0, c#2L, current_timestamp() AS at#3]"
    require_repeatable(plan(above, COUNT, "Filter (ProcessingTime#4 > now#5)", STREAM), remedy="")
    with pytest.raises(Refused):  # it can give another number of rows, by which the batch is recognised
        require_repeatable(plan("Filter (at#3 < current_date(Some(UTC)))", above, COUNT, STREAM), remedy="")
    with pytest.raises(Refused):
        require_repeatable(plan(COUNT, above, STREAM), remedy="")


def test_what_is_read_beside_streams_is_named() -> None:
    join = plan(COUNT, "Join Inner, (n#0 = m#5)", STREAM)
    assert read_beside(join) == ()
    (under,) = join.children
    beside = PlanNode(under.name, under.detail, (*under.children, *plan("Project [m#5]", "Relation [m#5] csv").children))
    assert read_beside(beside) == ("Relation [m] csv",)


THEN = {"format": "csv", "path": "in", "schema": "n INT", "options.header": "true", "options.maxFilesPerTrigger": "1"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"options.maxFilesPerTrigger": "7", "path": "./in"}, []),
        ({"schema": "n INT, more STRING"}, []),
        ({"schema": "n INTEGER"}, ["sources.s.schema"]),
        ({"options.header": "false"}, ["sources.s.options.header"]),
        ({"watermark.delay": "60"}, ["sources.s.watermark.delay"]),
    ],
)
def test_a_source_that_gives_other_rows_differs(change: dict[str, str], expected: list[str]) -> None:
    then = RunDescription(query={"transform.sql": "a", "trigger": "x"}, sources={"s": THEN}, sinks={})
    now = RunDescription(query={"transform.sql": "a"}, sources={"s": {**THEN, **change}}, sinks={})
    assert differences(then, now, sources=[SourceName("s#2")]) == expected


def test_a_query_that_computes_otherwise_differs() -> None:
    zone = "spark.conf.spark.sql.session.timeZone"
    then = RunDescription(query={"transform.sql": "a", "spark.conf.spark.sql.shuffle.partitions": "2"}, sources={}, sinks={})
    now = RunDescription(query={"transform.sql": "b", zone: "UTC"}, sources={}, sinks={})
    assert differences(then, now, sources=[]) == [zone, "transform.sql"]


def decided(batch_id: int, generation: int) -> Entry:
    opened = opened_entry()
    after = replace(opened, generation=Generation(generation), summary=replace(opened.summary, next_batch_id=BatchId(batch_id)))
    return decided_entry(after=after)


def behind(*batches: int) -> SinceSavepoint:
    """A savepoint that ends with batch 4, and decisions."""
    point = LedgerPoint(
        pipeline=PIPELINE, ledger_id=None, position=Position(5), nonce=Nonce("n"), query_id=QUERY, batch_id=BatchId(4), totals={}
    )
    savepoint = Savepoint(name="a", point=point, checkpoint="/checkpoint", created_at_ms=0, files={})
    return SinceSavepoint(savepoint=savepoint, entries=[decided(batch_id, 1) for batch_id in batches])


def test_decisions_adjoin_the_savepoint_and_each_other() -> None:
    source = SourceName("events")
    require_adjoining(behind(5, 6, 7), BatchId(7), ends={source: "5"})
    for batches in ((6, 7), (5, 7), (5, 6)):
        with pytest.raises(Refused, match="does not hold every decision behind batch 4 of savepoint 'a', up to batch 7"):
            require_adjoining(behind(*batches), BatchId(7), ends={source: "5"})
    with pytest.raises(Refused, match="Batch 5 does not begin where the one before ended in source events"):
        require_adjoining(behind(5, 6), BatchId(6), ends={source: "4"})


def test_batches_have_the_watermarks_that_their_runs_noted(tmp_path: Path) -> None:
    records = BatchRecords(str(tmp_path))
    noted = [
        (1, 5, "2026-01-01T00:00:01.500Z"),
        (1, 6, "2030-01-01T00:00:00.000Z"),
        (3, 6, "2026-01-01T00:00:02.000Z"),
        (3, 7, None),
    ]
    for generation, batch_id, watermark in noted:
        times = dict.fromkeys(("began_ms", "fetch_ms", "offset_log_ms", "plan_ms", "execute_ms", "commit_log_ms", "total_ms"), 0)
        records.write(SparkRecord(generation=Generation(generation), batch_id=BatchId(batch_id), watermark=watermark, **times))
    found = watermarks_of(str(tmp_path), [decided(5, 1), decided(6, 2), decided(7, 3), decided(8, 3)])
    assert found == {5: 1767225601500, 6: 1767225602000}  # batch 6 of the first run was taken back


def test_what_the_newest_runs_were_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(description, "KEPT", 3)
    was = RunDescription(query={}, sources={}, sinks={})
    for number in range(7, 12):
        run = RecordedRun(pipeline=PIPELINE, ledger_id=None, generation=Generation(number), description=was)
        record_run(str(tmp_path), run, keep=[Generation(7)])
    kept = [number for number in range(12) if recorded_run(str(tmp_path), Generation(number), ledger_id=None) == was]
    assert kept == [7, 9, 10, 11]
