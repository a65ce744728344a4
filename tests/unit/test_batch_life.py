"""What a driver notes of batches, what is read of it, and the life of a batch that comes of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.guarantee import at_least_once, exactly_once
from penstock.core.model import BatchId, Generation, Guarantee, Position, SinkName
from penstock.observe import batch_record
from penstock.observe.batch_life import BatchLife, StepKind, lives_of
from penstock.observe.batch_record import FILE, BatchRecords, DeliveryRecord, SparkRecord, records_of
from penstock.observe.guarantee_note import guarantee_note, note_guarantee
from penstock.observe.history import HistoryRow
from penstock.observe.page.charts import HEIGHT, rate_chart, step_chart
from penstock.observe.progress import BatchProgress

LAKE, AUDIT = SinkName("lake"), SinkName("audit")
ROW = HistoryRow(
    position=Position(9),
    generation=Generation(2),
    kind="decided",
    written_at_ms=0,
    text="batch 7: 1000 rows",
    batch_id=BatchId(7),
    rows_out=1_000,
    stage_ms=700,
    publish_ms=280,
)
DELIVERED = DeliveryRecord(
    generation=Generation(2),
    batch_id=BatchId(7),
    at_ms=1,
    rows_read=1_100,
    stage_ms=700,
    decide_ms=10,
    publish_ms=290,
    sink_ms={LAKE: 240, AUDIT: 290},
)
SPARK = SparkRecord(
    generation=Generation(2),
    batch_id=BatchId(7),
    began_ms=0,
    fetch_ms=40,
    offset_log_ms=30,
    plan_ms=30,
    execute_ms=1_050,
    commit_log_ms=50,
    total_ms=1_210,
)


def steps_of(life: BatchLife) -> list[tuple[StepKind, str | None, int, int]]:
    return [(step.kind, step.sink, step.after_ms, step.duration_ms) for step in life.steps]


def test_a_batch_has_the_steps_that_were_measured(tmp_path: Path) -> None:
    records = BatchRecords(str(tmp_path))
    for record in (DELIVERED, SPARK, replace(DELIVERED, generation=Generation(3), already=True)):
        records.write(record)
    [life] = lives_of([ROW], home=str(tmp_path))
    assert steps_of(life) == [
        (StepKind.FETCH, None, 0, 40),
        (StepKind.OFFSET_LOG, None, 40, 30),
        (StepKind.PLAN, None, 70, 30),
        (StepKind.STAGE, None, 100, 700),
        (StepKind.WAIT, None, 800, 50),
        (StepKind.DECIDE, None, 850, 10),
        (StepKind.PUBLISH, LAKE, 860, 240),
        (StepKind.PUBLISH, AUDIT, 860, 290),
        (StepKind.COMMIT_LOG, None, 1_150, 50),
    ]
    assert (life.duration_ms, life.rows_read, life.replays) == (1_200, 1_100, 1)
    progress = BatchProgress(batch_id=7, rows_out=1_000, sinks={}, stage_ms=700, decide_ms=10, publish_ms=290, path="driver")
    assert life.rows_per_s == progress.rows_per_s == 1_000, "history and run mean the same"


def test_without_notes_the_ledger_tells_what_it_knows(tmp_path: Path) -> None:
    [life] = lives_of([ROW], home=str(tmp_path / "nowhere"))
    assert steps_of(life) == [(StepKind.STAGE, None, 0, 700), (StepKind.PUBLISH, None, 700, 280)]
    assert (life.rows_read, life.replays, life.warnings) == (None, 0, ())
    assert lives_of([replace(ROW, stage_ms=None, publish_ms=None)], home=str(tmp_path))[0].rows_per_s is None


def test_a_batch_number_of_another_generation_is_another_batch(tmp_path: Path) -> None:
    records = BatchRecords(str(tmp_path))
    records.write(replace(DELIVERED, generation=Generation(1), rows_read=5))
    records.write(replace(DELIVERED, generation=Generation(1), already=True))
    records.write(replace(DELIVERED, recovered=True, rows_read=6))
    [life] = lives_of([ROW], home=str(tmp_path))
    assert (life.rows_read, life.replays) == (None, 0)


def test_lines_that_nobody_can_read_are_passed_over(tmp_path: Path) -> None:
    records = BatchRecords(str(tmp_path))
    records.write(DELIVERED)
    whole = (tmp_path / FILE).read_bytes()
    newer = {**json.loads(whole), "version": 2}
    other = {**json.loads(whole), "kind": "other"}
    lines = [whole[10:], b"null\n", b"\xff\n", json.dumps(newer).encode() + b"\n", json.dumps(other).encode() + b"\n", whole]
    (tmp_path / FILE).write_bytes(b"".join(lines) + whole[:40])
    assert records_of(str(tmp_path), {BatchId(7)}) == [DELIVERED]
    assert records_of(str(tmp_path), set()) == ()


def test_two_files_are_kept_and_all_of_them_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_record, "FULL_BYTES", 3_000)
    monkeypatch.setattr(batch_record, "TAIL_BYTES", (500, 1_000))
    records = BatchRecords(str(tmp_path))
    for number in range(61):
        records.write(replace(DELIVERED, batch_id=BatchId(number)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["batches.1.jsonl", "batches.jsonl"]
    assert all(path.stat().st_size < 3_500 for path in tmp_path.iterdir())
    retained = [record.batch_id for record in records_of(str(tmp_path), set(map(BatchId, range(61))))]
    assert retained == list(range(retained[0], 61))
    assert 10 < len(retained) < 30
    for batch_id in retained:
        assert [record.batch_id for record in records_of(str(tmp_path), {batch_id})] == [batch_id]


def test_notes_are_for_their_owner_only_and_a_home_that_is_away_is_none_of_their_business(tmp_path: Path) -> None:
    BatchRecords(str(tmp_path)).write(DELIVERED)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    BatchRecords(str(tmp_path / "nowhere")).write(DELIVERED)
    BatchRecords("s3://bucket/home").write(DELIVERED)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_what_is_guaranteed_is_noted(tmp_path: Path) -> None:
    claims = (
        exactly_once("source s (csv)", "Why.", "A change."),
        at_least_once("sink c (console)", "For people.", "Take it out."),
    )
    note_guarantee(str(tmp_path), claims)
    found = guarantee_note(str(tmp_path))
    assert found is not None
    assert [(claim.subject, claim.guarantee, claim.why) for claim in found.claims] == [
        ("source s (csv)", Guarantee.EXACTLY_ONCE, "Why."),
        ("sink c (console)", Guarantee.AT_LEAST_ONCE, "For people."),
    ]
    assert found.given is Guarantee.AT_LEAST_ONCE
    (tmp_path / "guarantee.json").write_text((tmp_path / "guarantee.json").read_text().replace("why", "wherefore"))
    assert guarantee_note(str(tmp_path)) is None


def test_charts_show_the_newest_batch_on_the_right_and_cut_what_is_far_higher() -> None:
    first = BatchLife(entry=replace(ROW, stage_ms=60_000, rows_out=10))
    others = [BatchLife(entry=replace(ROW, position=Position(10 + number), stage_ms=700 + number)) for number in range(20)]
    opened = BatchLife(entry=replace(ROW, kind="opened", batch_id=None))
    steps = step_chart([*reversed(others), opened, first])
    assert (len(steps.columns), steps.cut, steps.kinds) == (21, True, (StepKind.STAGE, StepKind.PUBLISH))
    assert 1_000 <= steps.top <= 4_000
    assert steps.columns[-1].life is others[-1]
    assert set(steps.shapes) == {"stage", "publish"}
    rates = rate_chart([*reversed(others), opened, first])
    assert (rates.cut, rates.shapes["bar"].count("M") <= 21) == (False, True)
    assert all(0 <= float(y) <= HEIGHT for y in [part.split("h")[0].split()[1] for part in rates.shapes["bar"].split("M")[1:]])
    assert (rate_chart([]).top, step_chart([]).shapes) == (0.0, {})
