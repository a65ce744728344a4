"""A pipeline with many decisions, measured batches, claims and an error, whose texts are hostile where they can be."""

from dataclasses import replace
from pathlib import Path

from penstock.core.guarantee import at_least_once, exactly_once
from penstock.core.model import Batch, BatchId, Decided, Entry, Generation, PipelineName, SinkName
from penstock.errors import Failed
from penstock.ledger.open import open_ledger
from penstock.observe.batch_record import BatchRecords, DeliveryRecord, SparkRecord
from penstock.observe.guarantee_note import note_guarantee
from penstock.observe.last_error import note_error
from penstock.testing.entries import decided_entry, opened_entry

NOW_MS = 1_796_000_000_000
HOSTILE = "</code><script>alert(1)</script><img src=x onerror=alert(2)>\" ' & \u202egnp `<b>`"
BATCHES = 130
FILE = "pipeline: shop\nhome: ./shop\nsources: {s: {format: rate}}\nsinks: {lake: {type: memory}}\n"


def with_offsets(entry: Entry, *, text: str, at_ms: int) -> Entry:
    """The entry of a decision whose offsets hold that text."""
    assert isinstance(entry.body, Decided)
    decision = entry.body.decision
    offsets = tuple(replace(each, end=text) for each in decision.batch.offsets)
    batch = Batch(query_id=decision.batch.query_id, batch_id=decision.batch.batch_id, offsets=offsets)
    body = Decided(decision=replace(decision, batch=batch, stage_ms=700, previous_publish_ms=300))
    return replace(entry, body=body, written_at_ms=at_ms)


def make_world(directory: Path) -> Path:
    """Make the pipeline file and all that it has below a directory; return the file."""
    (directory / "shop.yaml").write_text(FILE)
    home = directory / "shop"
    home.mkdir()
    ledger = open_ledger(f"sqlite:///{home}/ledger.db", pipeline=PipelineName("shop"))
    entry = replace(opened_entry(pipeline=PipelineName("shop")), written_at_ms=NOW_MS - 10_000 * (BATCHES + 1))
    ledger.append(entry)
    records = BatchRecords(str(home))
    for number in range(BATCHES):
        at_ms = NOW_MS - 10_000 * (BATCHES - number)
        entry = with_offsets(decided_entry(after=entry, rows=1_000 + number), text=HOSTILE, at_ms=at_ms)
        ledger.append(entry)
        note_batch(records, number)
    ledger.close()
    note_error(str(home), Failed(f"The row {HOSTILE} does not fit.", remedy="Mend it, then start again: `penstock run FILE`."))
    claims = [exactly_once("source s (rate)", HOSTILE, "A changed rate."), at_least_once("sink lake (memory)", "It forgets.", "")]
    note_guarantee(str(home), claims)
    return directory / "shop.yaml"


def note_batch(records: BatchRecords, number: int) -> None:
    """What a driver notes of a batch: it took 1,100 ms, 100 of them before it was staged."""
    names = {"generation": Generation(1), "batch_id": BatchId(number)}
    sinks = {SinkName("lake"): 240, SinkName("audit"): 290}
    delivered = DeliveryRecord(**names, at_ms=0, rows_read=2_000, stage_ms=700, decide_ms=9, publish_ms=290, sink_ms=sinks)
    records.write(delivered)
    times = {"fetch_ms": 40, "offset_log_ms": 35, "plan_ms": 25, "execute_ms": 1_000, "commit_log_ms": 30, "total_ms": 1_130}
    records.write(SparkRecord(**names, **times, began_ms=0, state_rows=77, state_bytes=12_345, watermark="2026-11-29T08:00:00Z"))
    if number == 7:
        records.write(replace(delivered, already=True))
