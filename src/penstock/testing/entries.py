"""Small, valid ledger entries for tests; a chain of them is what a delivering pipeline would have written."""

from collections.abc import Iterator
from dataclasses import replace

from penstock.commit.summary import after_decision
from penstock.core.model import (
    AccountName,
    Attempt,
    Batch,
    BatchId,
    Decided,
    Decision,
    Entry,
    Generation,
    Nonce,
    OffsetRange,
    Opened,
    PipelineName,
    Position,
    QueryId,
    SinkName,
    SourceName,
    Staged,
    Summary,
    Totals,
    new_nonce,
)

PIPELINE = PipelineName("example")
QUERY = QueryId("5f0c9f0e-0000-4000-8000-000000000001")
SINK = SinkName("lake")


def opened_entry(*, after: Entry | None = None, pipeline: PipelineName = PIPELINE) -> Entry:
    """Return the entry of a driver that opens the pipeline after `after`."""
    body = Opened(owner="host:1", checkpoint="/checkpoint", pipeline_digest="0" * 16, sinks=(SINK,), versions={"penstock": "0"})
    return Entry(
        pipeline=pipeline,
        position=Position(1 if after is None else after.position + 1),
        generation=Generation(1 if after is None else after.generation + 1),
        nonce=new_nonce(),
        written_at_ms=0,
        body=body,
        summary=Summary() if after is None else after.summary,
    )


def decided_entry(*, after: Entry, rows: int = 1, inline: bytes | None = b"rows") -> Entry:
    """Return the entry of a driver that decides the next batch after `after`, in the same generation."""
    position = Position(after.position + 1)
    decision = decision_of(BatchId(after.summary.next_batch_id or 0), generation=after.generation, rows=rows, inline=inline)
    summary = after_decision(after.summary, decision, position=position)
    return replace(after, position=position, nonce=new_nonce(), body=Decided(decision=decision), summary=summary)


def decision_of(batch_id: BatchId, *, generation: Generation, rows: int, inline: bytes | None) -> Decision:
    """Return a decision of one staged piece of `rows` rows."""
    attempt = Attempt(generation=generation, batch_id=batch_id, partition=0, task_attempt=0, nonce=Nonce(new_nonce()))
    piece = Staged(
        sink=SINK,
        account=AccountName("EWR"),
        name=f"part-{attempt.token}.parquet",
        attempt=attempt.token,
        totals=Totals(rows=rows, files=1, size_bytes=len(inline or b""), digest=batch_id),
        inline=inline,
    )
    offsets = OffsetRange(source=SourceName("events"), start=str(batch_id), end=str(batch_id + 1))
    batch = Batch(query_id=QUERY, batch_id=batch_id, offsets=(offsets,))
    return Decision(batch=batch, staged=(piece,), rows_in=rows, schema="{}")


def chain(*, pipeline: PipelineName = PIPELINE) -> Iterator[Entry]:
    """Yield an opening and then decisions without end, as one run writes them."""
    entry = opened_entry(pipeline=pipeline)
    while True:
        yield entry
        entry = decided_entry(after=entry)
