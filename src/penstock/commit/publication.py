"""Derives from ledger entries and present sinks what a sink publishes, what a sweep may collect, and which decision goes on."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from penstock.core.backfill import Backfilled
from penstock.core.model import (
    Adopted,
    BatchId,
    Decided,
    Decision,
    Entry,
    LedgerId,
    Position,
    Publication,
    Rewound,
    SinkName,
    SourceName,
    Summary,
    SweepCut,
)
from penstock.core.replay import Replayed
from penstock.errors import LedgerMismatch
from penstock.protocols import Ledger, Sink


def decision_in(entry: Entry) -> Decision:
    """Return the decision that `entry` records: a batch, its repetition for one sink, or a replay. The caller knows of one."""
    assert isinstance(entry.body, Decided | Backfilled | Replayed)
    return entry.body.decision


def settled_at(summary: Summary) -> Position:
    """Return the position up to which every decision is published, or taken back; 0 if nothing was decided before.

    Batches that a backfill decided again do not count, unless they brought rows for the quarantine.
    """
    replayed_at = summary.replayed_at if summary.replaying_at is None else None
    return max(summary.published_at or Position(0), summary.rewound_at or Position(0), replayed_at or Position(0))


def newest_given(summary: Summary, sink: SinkName) -> Position:
    """Return the newest position at which the sink can have been given rows, published or not; 0 if there is none."""
    backfill = summary.backfills.get(sink)
    given = Position(0) if backfill is None else backfill.newest
    return max(summary.decided_at or Position(0), summary.replayed_at or Position(0), given)


def sinks_apart(summary: Summary) -> frozenset[SinkName]:
    """Return the sinks that decisions are made without: a backfill beside the driver gives them all that they get."""
    return frozenset(sink for sink, progress in summary.backfills.items() if progress.apart)


def holds_rows_of(entry: Entry, sink: SinkName) -> bool:
    """Return whether `entry` is a decision that the sink has, or can have, a part of."""
    body = entry.body
    if isinstance(body, Replayed):
        return bool(body.decision.of_sink(sink))
    if isinstance(body, Backfilled):
        return body.sink == sink or bool(body.decision.of_sink(sink))
    return isinstance(body, Decided)


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
        schema=decision.schema_of(sink),
        ledger_id=ledger_id,
        row_digest=entry.summary.row_digest,
        previous=_previous(entry, sink),
    )


def _previous(entry: Entry, sink: SinkName) -> Position:
    """Return the newest position before `entry` at which the sink can have been given something: all that is settled."""
    if isinstance(entry.body, Backfilled | Replayed):
        return entry.body.previous
    summary, backfill = entry.summary, entry.summary.backfills.get(sink)
    replayed_at = summary.replayed_at or Position(0)
    return max(settled_at(summary), replayed_at, Position(0) if backfill is None else backfill.newest)


def standing(newest_first: Iterable[Entry], sink: SinkName | None = None) -> Iterator[Entry]:
    """Yield entries of a ledger, which come from its tail backwards, without the decisions that a later rewind took back.

    With `sink`, the decisions that it kept are among them.
    """
    limit: Position | None = None
    for entry in newest_first:
        if isinstance(entry.body, Rewound) and sink not in entry.body.kept:
            limit = entry.body.to if limit is None else min(limit, entry.body.to)
        if limit is None or entry.position <= limit or not isinstance(entry.body, Decided):
            yield entry


def publications(newest_first: Iterable[Entry], sink: SinkName) -> Iterator[Publication]:
    """Yield the sink's share of every decision among the entries of a ledger, from its tail backwards, that stands for it."""
    decided = (entry for entry in standing(newest_first, sink) if holds_rows_of(entry, sink))
    return (publication_of(entry, sink, ledger_id=entry.summary.ledger_id) for entry in decided)


def decided_entry(ledger: Ledger, batch_id: BatchId) -> Entry | None:
    """Return the newest retained decision of that batch number since the last adoption that stands. Reads every newer entry."""
    for entry in standing(ledger.newest_first()):
        if isinstance(entry.body, Adopted):
            return None
        if isinstance(entry.body, Decided) and entry.body.decision.batch.batch_id <= batch_id:
            return entry if entry.body.decision.batch.batch_id == batch_id else None
    return None


def batch_at(ledger: Ledger, position: Position) -> BatchId | None:
    """Return the newest batch as of `position`: decided there, or rewound to. None for other entries, retained or not."""
    entry = ledger.read(position)
    if entry is not None and isinstance(entry.body, Rewound):
        return entry.body.batch_id
    return None if entry is None or not _decides(entry) else decision_in(entry).batch.batch_id


def _decides(entry: Entry) -> bool:
    return isinstance(entry.body, Decided | Backfilled | Replayed)


def decision_of(ledger: Ledger, batch_id: BatchId) -> Decision | None:
    """Return the decision in the entry that `decided_entry` returns, None if that is None."""
    entry = decided_entry(ledger, batch_id)
    return None if entry is None else decision_in(entry)


def continued_decision(ledger: Ledger, summary: Summary) -> tuple[Decision, frozenset[tuple[SourceName, str]]] | None:
    """Return the newest decision, and the sources' topics that were moved behind an accepted gap since. It holds for all others.

    None if nothing was decided, or another checkpoint was adopted since. Reads the decision; after an adoption also every entry
    from it to the adoption.
    """
    if summary.decided_at is None:
        return None
    moved = set[tuple[SourceName, str]]()
    for position in range(summary.decided_at + 1, (summary.adopted_at or 0) + 1):
        entry = ledger.read(Position(position))
        if entry is None or (isinstance(entry.body, Adopted) and not entry.body.gaps):
            return None
        if isinstance(entry.body, Adopted):
            moved |= {(gap.source, gap.topic) for gap in entry.body.gaps}
    newest = ledger.read(summary.decided_at)
    return None if newest is None else (decision_in(newest), frozenset(moved))


def waiting_entries(ledger: Ledger, summary: Summary) -> tuple[Entry, ...]:
    """Return what may not be published yet beside the newest decision. Reads each entry.

    That is the newest batch of each backfill that has not ended, and the newest replay until it is published.
    """
    positions = {backfill.newest for backfill in summary.backfills.values() if not backfill.ended}
    positions -= {Position(0)}
    positions |= set() if summary.replaying_at is None else {summary.replaying_at}
    found = (ledger.read(position) for position in sorted(positions))
    return tuple(entry for entry in found if entry is not None)


def replaying_entry(ledger: Ledger, summary: Summary) -> Entry | None:
    """Return the newest replay if it is not published everywhere yet, else None. Raises LedgerMismatch if it is gone."""
    if summary.replaying_at is None:
        return None
    entry = ledger.read(summary.replaying_at)
    if entry is None:
        raise LedgerMismatch(
            f"The ledger at {ledger.location} no longer holds what was replayed at position {summary.replaying_at}: whether "
            "every sink has it is not known.",
            remedy="Entries were removed by hand: restore the ledger from a backup.",
        )
    return entry


def replays_without(ledger: Ledger, summary: Summary, *, sink: SinkName, present: Collection[str]) -> Iterator[Entry]:
    """Yield the published replays of which `sink` lacks a file, newest first. `present`: the files that it has.

    Costs two reads of the ledger for each replay, as far as it retains them.
    """
    at = summary.replayed_at
    while at is not None and (entry := ledger.read(at)) is not None:
        pieces = decision_in(entry).of_sink(sink)
        if isinstance(entry.body, Replayed) and at != summary.replaying_at and any(each.name not in present for each in pieces):
            yield entry
        before = ledger.read(Position(at - 1))
        at = None if before is None else before.summary.replayed_at


def replay_takers(replay: Entry, sinks: Sequence[Sink]) -> Sequence[Sink]:
    """Return the sinks that `replay` is published in as one: not the one that a backfill gave the batch to.

    Raises LedgerMismatch if a sink left the pipeline before it was published there (I1).
    """
    body, decision = replay.body, decision_in(replay)
    own = {body.sink} if isinstance(body, Backfilled) else set()
    absent = sorted({piece.sink for piece in decision.staged} - {sink.name for sink in sinks} - own)
    if absent:
        raise LedgerMismatch(
            f"What was replayed at position {replay.position} of the ledger holds rows for sink {absent[0]!r}, which the "
            "pipeline file no longer has.",
            remedy="Run `penstock recover` with the pipeline file that still has this sink; then take it out.",
        )
    return [sink for sink in sinks if sink.name not in own and holds_rows_of(replay, sink.name)]


def waiting_backfill_of(ledger: Ledger, summary: Summary, sink: SinkName) -> Entry | None:
    """Return the newest batch of the sink's backfill if that has not ended, else None. Raises LedgerMismatch if it is gone."""
    backfill = summary.backfills.get(sink)
    if backfill is None or backfill.ended:
        return None
    entry = ledger.read(backfill.newest)
    if entry is None:
        raise LedgerMismatch(
            f"The ledger at {ledger.location} no longer holds what the backfill of sink {sink!r} decided last, at position "
            f"{backfill.newest}: whether the sink has it is not known.",
            remedy="Give the sink another name and an empty place, and backfill that.",
        )
    return entry


def dead_staging(tail: Entry, newest: Entry | None, *, waiting: Iterable[Entry] = ()) -> SweepCut:
    """Return what may be collected, by the ledger's tail, its newest decision and what `waiting_entries` returns (I10).

    Needs no fence: a run that decides meanwhile decides a newer batch, or under a newer generation, and both are spared.
    """
    kept = (*(() if newest is None else (newest,)), *waiting)
    same_generation = newest is not None and newest.generation == tail.generation
    return SweepCut(
        pipeline=tail.pipeline,
        ledger_id=tail.summary.ledger_id,
        generation=tail.generation,
        batch_id=decision_in(newest).batch.batch_id if newest is not None and same_generation else None,
        kept=frozenset(piece.attempt for entry in kept for piece in decision_in(entry).staged),
    )


def require_sinks_of(newest: Entry, sinks: Sequence[Sink], summary: Summary) -> None:
    """Raise LedgerMismatch if a sink left the pipeline before the rows that `newest` decided for it were published (I1)."""
    decision = decision_in(newest)
    absent = sorted({piece.sink for piece in decision.staged} - {sink.name for sink in sinks})
    if absent and not _is_settled(newest, summary):
        raise LedgerMismatch(
            f"Batch {decision.batch.batch_id} holds rows for sink {absent[0]!r}, which the pipeline file no longer has.",
            remedy="Run `penstock recover` with the pipeline file that still has this sink; then take it out.",
        )


def joined_since(newest: Entry, sinks: Sequence[Sink]) -> Sequence[Sink]:
    """Return the sinks that were not in the pipeline when `newest` was decided: it has no piece and no schema for them."""
    decision = decision_in(newest)
    took = {piece.sink for piece in decision.staged} | decision.schemas.keys()
    return [sink for sink in sinks if decision.rows_in and sink.name not in took]


def filled_since(newest: Entry, sinks: Sequence[Sink], summary: Summary) -> Sequence[Sink]:
    """Return the sinks that a backfill gave batches behind `newest`. It published that first, and they may know it no more."""
    given = summary.backfills
    return [sink for sink in sinks if sink.name in given and given[sink.name].newest > newest.position]


def share_of(sink: Sink, decided: Entry, summary: Summary) -> Publication:
    """Return the sink's share of `decided`. If that is published everywhere, accounts that the sink lost since are left out."""
    share = publication_of(decided, sink.name, ledger_id=summary.ledger_id)
    if not _is_settled(decided, summary):
        return share
    return replace(share, staged=tuple(piece for piece in share.staged if piece.account in sink.accounts))


def _is_settled(decided: Entry, summary: Summary) -> bool:
    return decided.position == summary.published_at
