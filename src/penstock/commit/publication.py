"""What a sink publishes, and what a sweep may collect, by the entries of the ledger."""

from collections.abc import Iterator

from penstock.core.model import Adopted, BatchId, Decided, Decision, Entry, LedgerId, Position, Publication, SinkName, SweepCut
from penstock.protocols import Ledger


def decision_in(entry: Entry) -> Decision:
    """Return the decision that `entry` records. The caller knows that it records one."""
    assert isinstance(entry.body, Decided)
    return entry.body.decision


def publication_of(entry: Entry, sink: SinkName, *, ledger_id: LedgerId | None) -> Publication:
    """Return the sink's share of a decided entry. The ledger may have got its identity `ledger_id` after that entry."""
    decision = decision_in(entry)
    return Publication(
        pipeline=entry.pipeline,
        sink=sink,
        position=entry.position,
        generation=entry.generation,
        batch=decision.batch,
        staged=decision.of_sink(sink),
        schema=decision.schema,
        ledger_id=ledger_id,
        row_digest=entry.summary.row_digest,
        previous=entry.summary.published_at or Position(0),  # all decisions before it are published
    )


def publications(entries: Iterator[Entry], sink: SinkName) -> Iterator[Publication]:
    """Yield the sink's share of every decision among `entries`, in their order."""
    return (
        publication_of(entry, sink, ledger_id=entry.summary.ledger_id) for entry in entries if isinstance(entry.body, Decided)
    )


def decided_entry(ledger: Ledger, batch_id: BatchId) -> Entry | None:
    """Find the newest retained decision of that batch number since the last adoption. Reads every entry behind it."""
    for entry in ledger.newest_first():
        if isinstance(entry.body, Adopted):
            return None
        if isinstance(entry.body, Decided) and entry.body.decision.batch.batch_id <= batch_id:
            return entry if entry.body.decision.batch.batch_id == batch_id else None
    return None


def decision_of(ledger: Ledger, batch_id: BatchId) -> Decision | None:
    """Find the decision that `decided_entry` finds the entry of."""
    entry = decided_entry(ledger, batch_id)
    return None if entry is None else decision_in(entry)


def dead_staging(tail: Entry, newest: Entry | None) -> SweepCut:
    """Return what may be collected, by the ledger's tail and its newest decision (I10).

    Needs no fence: a run that decides meanwhile decides a newer batch, or under a newer generation, and both are spared.
    """
    same_generation = newest is not None and newest.generation == tail.generation
    return SweepCut(
        pipeline=tail.pipeline,
        ledger_id=tail.summary.ledger_id,
        generation=tail.generation,
        batch_id=decision_in(newest).batch.batch_id if newest is not None and same_generation else None,
        kept=frozenset(() if newest is None else (piece.attempt for piece in decision_in(newest).staged)),
    )
