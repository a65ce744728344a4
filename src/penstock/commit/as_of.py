"""The decision as of which a reader sees whole batches of a table: the newest that is published everywhere, or an older one.

Files of a table are cut by what their names say. A decision is later than another exactly if its generation, or in the same
generation its batch, is higher: an older generation is fenced before a newer one decides, and inside of a generation the numbers
of batches grow (`Coordinator.adopt`). So the table as of a decision is every file up to its generation and batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.commit.publication import decided_entry, decision_in
from penstock.core.backfill import Backfilled
from penstock.core.bad_record import NAME
from penstock.core.model import Adopted, BatchId, Entry, Generation, Position, QueryId, SinkName, Summary
from penstock.core.replay import Replayed
from penstock.errors import BatchForgotten, Retryable
from penstock.protocols import Ledger

IsShown = Callable[[Entry], bool]
"""Whether every account that a reader asks for shows a decision, by the account's own marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """The decision that a table is read as of: it and all before it, nothing after it."""

    position: Position
    generation: Generation
    batch_id: BatchId
    query_id: QueryId


def as_of(entry: Entry) -> AsOf:
    """Return the decision that `entry` records."""
    batch = decision_in(entry).batch
    return AsOf(position=entry.position, generation=entry.generation, batch_id=batch.batch_id, query_id=batch.query_id)


def newest_whole(ledger: Ledger, is_shown: IsShown) -> Entry | None:
    """Return the newest decision that is published in every account that the reader asks for, None if there is none yet.

    Costs two reads of the ledger. Raises BatchForgotten, and what `is_shown` raises.
    """
    tail = ledger.tail()
    if tail is None or tail.summary.decided_at is None:
        return None
    summary, decided_at, replayed_at = tail.summary, tail.summary.decided_at, tail.summary.replayed_at or Position(0)
    if decided_at != summary.published_at and replayed_at < decided_at:
        newest = _decided_at(ledger, decided_at)
        if is_shown(newest):
            return newest
    replay = _newest_replay(ledger, summary)
    if replay is not None and (summary.replaying_at is None or is_shown(replay)):
        return replay
    published_at = decided_at if decided_at < replayed_at else summary.published_at
    return None if published_at is None else _decided_at(ledger, published_at)


def _newest_replay(ledger: Ledger, summary: Summary) -> Entry | None:
    """Return the newest replay if that is later than what is published of the query's batches, else None.

    All batches that were decided before it were published then. Costs two reads for each batch that a backfill gave behind it
    with rows for the quarantine.
    """
    at = summary.replayed_at
    while at is not None and at >= (summary.published_at or 0):
        entry = _decided_at(ledger, at)
        if isinstance(entry.body, Replayed):
            return entry
        before = ledger.read(Position(at - 1))
        at = None if before is None else before.summary.replayed_at
    return None


def newest_for_sink(ledger: Ledger, sink: SinkName, newest: Entry | None) -> Entry | None:
    """Return the newest of what a backfill has given the sink, if that is later than `newest`; else `newest`.

    What a backfill gives that has not ended is not counted, except rows for the quarantine.
    """
    tail = ledger.tail()
    if sink == NAME and tail is not None and tail.summary.replayed_at is not None and tail.summary.replaying_at is None:
        at = tail.summary.replayed_at
        return newest if newest is not None and newest.position > at else _decided_at(ledger, at)
    backfill = None if tail is None else tail.summary.backfills.get(sink)
    if (
        backfill is None
        or not backfill.ended
        or not backfill.newest
        or (newest is not None and newest.position > backfill.newest)
    ):
        return newest
    return _decided_at(ledger, backfill.newest)


def backfilled_batch(ledger: Ledger, sink: SinkName, batch_id: BatchId) -> Entry | None:
    """Return the entry by which a backfill that has ended gave the sink a batch of the present checkpoint, None if none did."""
    tail = ledger.tail()
    backfill = None if tail is None else tail.summary.backfills.get(sink)
    if backfill is None or not backfill.ended:
        return None
    for entry in ledger.newest_first():
        body = entry.body
        if isinstance(body, Backfilled) and body.sink == sink and body.decision.batch.batch_id == batch_id:
            return entry
        if isinstance(body, Adopted) and not body.gaps:
            return None
    return None


def whole_batch(ledger: Ledger, batch_id: BatchId, newest: Entry | None) -> Entry:
    """Return the decision of a batch of the present checkpoint; `newest` is what `newest_whole` found.

    Raises Retryable if it is not published everywhere yet, BatchForgotten if the ledger does not know any more which one it was.
    """
    tail = ledger.tail()
    adopted_at = None if tail is None else tail.summary.adopted_at
    current = None if newest is None or (adopted_at is not None and newest.position < adopted_at) else newest
    is_to_come = current is None or decision_in(current).batch.batch_id < batch_id
    if is_to_come and not _is_before_adoption(ledger, adopted_at, batch_id):
        none = "none is" if newest is None else "none is since the last adoption"
        found = none if current is None else f"the newest that is published everywhere is {decision_in(current).batch.batch_id}"
        raise Retryable(
            f"Batch {batch_id} is not published in every account yet: {found}.",
            remedy="Try again later, or ask for no batch to get the newest one.",
        )
    entry = decided_entry(ledger, batch_id)
    if entry is None or current is None or entry.position > current.position:  # a batch of another query, adopted meanwhile
        raise BatchForgotten(
            f"The ledger no longer says which files are of batch {batch_id}: it is from before the last adoption, or older than "
            "what the ledger retains.",
            remedy="Ask for a batch that `penstock history` lists since the last adoption, or for none to get the newest one.",
        )
    return entry


def _is_before_adoption(ledger: Ledger, adopted_at: Position | None, batch_id: BatchId) -> bool:
    """Return whether the checkpoint went on with a later batch when it was adopted: this one never comes any more."""
    adoption = None if adopted_at is None else ledger.read(adopted_at)
    return adoption is not None and isinstance(adoption.body, Adopted) and batch_id < adoption.body.next_batch_id


def _decided_at(ledger: Ledger, position: Position | None) -> Entry:
    entry = None if position is None else ledger.read(position)
    if entry is None:
        raise BatchForgotten(
            f"The newest batch that is published for certain, at position {position}, is no longer in the ledger.",
            remedy="Run `penstock recover`: it publishes what is decided, and records it.",
        )
    return entry
