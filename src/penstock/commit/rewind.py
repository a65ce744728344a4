"""Rewinding: an operator takes back every batch after one, from the sinks that can lose it exactly, and does them again.

The entry `Rewound` is the decision. What follows, in sinks and checkpoint, can be repeated until it is done. The run that carries
the act out records that by one more entry. Until then no other run starts.

Decisions that were taken back stay in the ledger, and stand no more (`standing`). Markers stay where they are: a position that a
sink has shown once is never shown again, so nobody who sleeps brings back what was taken.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from penstock.commit.identity import described_offsets
from penstock.commit.publication import decision_in, publications, sinks_apart, standing
from penstock.commit.removal import removal_acts
from penstock.commit.summary import FOR_EVER, after_rewind
from penstock.core.backfill import Backfilled
from penstock.core.model import (
    AccountName,
    Adopted,
    Batch,
    BatchId,
    Decided,
    Entry,
    Generation,
    Position,
    Publication,
    RemovalAccepted,
    Rewound,
    SinkName,
    SinkTotals,
    Staged,
    Summary,
    Totals,
)
from penstock.core.replay import Replayed
from penstock.core.taken_back import TakenBack
from penstock.errors import BatchForgotten, BatchGap, OffsetsConflict, Refused
from penstock.protocols import Ledger, Sink


@runtime_checkable
class TakesBack(Protocol):
    """A sink that can lose the batches after one, and nothing else."""

    def require_taken_back_exactly(self, taken: TakenBack) -> None:
        """Raise Refused if the target would lose more or less than `taken`. Only looks; also raises what reading raises."""
        ...

    def take_back(self, taken: TakenBack) -> None:
        """Remove durably what `taken` names, however often it is called. What is gone already is left out.

        Its marker stays where it is. Raises Retryable, Failed.
        """
        ...


# --- before the act


def decided_to(ledger: Ledger, batch_id: BatchId) -> Entry:
    """Return the decision to rewind to, the one of batch `batch_id` that stands. Raises BatchGap, BatchForgotten, Refused.

    A rewind goes back no further than the newest adoption or replay, and than what a backfill gave.
    """
    tail = ledger.tail()
    upcoming = None if tail is None else tail.summary.next_batch_id
    if upcoming is None or batch_id >= upcoming:
        newest = "has decided nothing" if not upcoming else f"has decided batches up to {upcoming - 1}"
        raise BatchGap(
            f"Batch {batch_id} was not delivered: the ledger {newest}.", remedy="Name a batch that `penstock history` lists."
        )
    for entry in standing(ledger.newest_first()):
        if isinstance(entry.body, Backfilled):
            raise Refused(
                f"Sink {entry.body.sink!r} was given earlier batches at position {entry.position} of the ledger, after batch "
                f"{batch_id}: it would lose them, too.",
                remedy="Rewind to a batch that was delivered after the backfill; `penstock history` shows which.",
            )
        if isinstance(entry.body, Replayed):
            raise Refused(
                f"Records of the quarantine were replayed at position {entry.position} of the ledger, after batch {batch_id}: "
                "sinks would lose them, and the quarantine would hold them as replayed.",
                remedy="Rewind to a batch that was delivered after the replay; `penstock history` shows which.",
            )
        if isinstance(entry.body, Adopted):
            raise Refused(
                f"Batch {batch_id} was delivered before position {entry.position} of the ledger, where a checkpoint or a gap was "
                f"adopted by {entry.body.operator}: {entry.body.reason}. What was read before that may not be readable again.",
                remedy="Rewind to a batch that was delivered after it; `penstock history` shows which.",
            )
        if isinstance(entry.body, Decided) and decision_in(entry).batch.batch_id == batch_id:
            return entry
    raise BatchForgotten(
        f"The ledger no longer holds the decision of batch {batch_id}.",
        remedy="Rewind to a batch that `penstock history` lists.",
    )


def require_level(tail: Entry, target: Entry, kept: Collection[SinkName]) -> None:
    """Raise Refused if a sink that is ahead of the batches now, or was at `target`, is not kept ahead."""
    for sink, newest in {**ahead_after(target), **ahead_after(tail)}.items():
        if sink not in kept:
            is_told = newest != FOR_EVER
            what = f"the batches up to {newest}" if is_told else "batches"
            raise Refused(
                f"Sink {sink!r} kept {what} when the pipeline was rewound before, and is not taken back.",
                remedy=f"Add `--keep {sink}`" + (f", or rewind to a batch after {newest}." if is_told else "."),
            )


def ahead_after(entry: Entry) -> Mapping[SinkName, BatchId]:
    """Return the sinks that have more than the batches up to `entry`, each with the newest one that it has."""
    upcoming = entry.summary.next_batch_id or 0
    return {sink: newest for sink, newest in entry.summary.ahead.items() if newest >= upcoming}


def taken_back(ledger: Ledger, sink: SinkName, *, after: Position, before: Position, generation: Generation) -> TakenBack:
    """Return what a rewind to the decision at `after` takes from `sink`. `before`: the position of the act."""
    entries = [entry for entry in ledger.newest_first() if entry.position < before]
    tail = ledger.tail()
    assert tail is not None
    shares = [share for share in publications(entries, sink) if share.position > after]
    removed = _removed_in(ledger, sink)
    return TakenBack(
        pipeline=tail.pipeline,
        sink=sink,
        ledger_id=tail.summary.ledger_id,
        generation=generation,
        after=after,
        position=before,
        publications=tuple(replace(share, staged=tuple(_left_of(share, removed))) for share in shares),
    )


def _removed_in(ledger: Ledger, sink: SinkName) -> "_Removals":
    return _Removals(list(removal_acts(ledger)), sink)


class _Removals:
    """The files of one sink that were removed on purpose."""

    def __init__(self, acts: Sequence[RemovalAccepted], sink: SinkName) -> None:
        removals = [removal for act in acts for removal in act.removals if removal.sink == sink]
        self._names = {(removal.account, name) for removal in removals for name in removal.files}
        self._ranges = [(removal.account, *ends) for removal in removals for ends in removal.decided]

    def has(self, piece: Staged, position: Position) -> bool:
        named = (piece.account, piece.name) in self._names
        return named or any(account == piece.account and first <= position <= last for account, first, last in self._ranges)


def _left_of(share: Publication, removed: _Removals) -> Iterator[Staged]:
    return (piece for piece in share.staged if not removed.has(piece, share.position))


# --- the act


def summary_after(rewound: Rewound, ledger: Ledger, tail: Entry, *, position: Position) -> Summary:
    """Return the summary of the act's entry behind `tail`. Raises Refused if its target is not what the ledger holds there."""
    target = ledger.read(rewound.to)
    if target is None or not isinstance(target.body, Decided) or decision_in(target).batch.batch_id != rewound.batch_id:
        raise Refused(f"The ledger does not hold batch {rewound.batch_id} at position {rewound.to}.", remedy="Try again.")
    require_level(tail, target, rewound.kept)
    _require_nothing_given_since(tail.summary, rewound)
    unremoved = _unremoved(ledger, rewound, [sink for sink in tail.summary.removed if sink not in rewound.kept])
    return after_rewind(tail.summary, rewound, target=target.summary, unremoved=unremoved, position=position)


def _require_nothing_given_since(summary: Summary, rewound: Rewound) -> None:
    """Raise Refused if a backfill beside this act gave a sink a batch since `decided_to` looked."""
    for sink, progress in summary.backfills.items():
        if progress.newest > rewound.to:
            raise Refused(
                f"Sink {sink!r} was given earlier batches at position {progress.newest} of the ledger, after batch "
                f"{rewound.batch_id}: it would lose them, too.",
                remedy="Rewind to a batch that was delivered after the backfill; `penstock history` shows which.",
            )


def _unremoved(ledger: Ledger, rewound: Rewound, sinks: Sequence[SinkName]) -> SinkTotals:
    """Return the totals of the pieces of batches that are taken back whose files were removed on purpose."""
    found: dict[SinkName, dict[AccountName, Totals]] = {}
    for sink in sinks:
        removed = _removed_in(ledger, sink)
        for share in publications(ledger.newest_first(), sink):
            for piece in share.staged if share.position > rewound.to else ():
                if removed.has(piece, share.position):
                    accounts = found.setdefault(sink, {})
                    accounts[piece.account] = accounts.get(piece.account, Totals()) + piece.totals
    return found


# --- after the act


def require_rewound(summary: Summary, ledger: Ledger, *, except_at: Position | None = None) -> None:
    """Raise Refused while a rewind is not carried out, except the one at position `except_at`."""
    at = summary.rewinding_at
    if at is None or at == except_at:
        return
    act = ledger.read(at)
    batch_id = act.body.batch_id if act is not None and isinstance(act.body, Rewound) else None
    raise Refused(
        f"The pipeline is being rewound to batch {batch_id}, as position {at} of the ledger says, and that is not finished.",
        remedy=f"Finish it by the command that began it: `penstock rewind FILE --to-batch {batch_id} --yes`, or "
        "`penstock savepoint restore FILE NAME --yes`",
    )


def rewound_since(ledger: Ledger, position: Position, *, tail: Entry) -> Position | None:
    """Return the position of the rewind that took back what was decided at `position`, None if none did."""
    at = tail.summary.rewound_at
    while at is not None and at > position and (act := ledger.read(at)) is not None:
        if isinstance(act.body, Rewound) and act.body.to < position:
            return at
        before = ledger.read(Position(at - 1))
        at = None if before is None else before.summary.rewound_at
    return None


def sinks_ahead(summary: Summary, batch_id: BatchId) -> frozenset[SinkName]:
    """Return the sinks that kept a batch of this number when it was taken back from others, by the ledger as of `summary`."""
    return frozenset(sink for sink, newest in summary.ahead.items() if batch_id <= newest)


def takers_of(decided: Entry, sinks: Sequence[Sink]) -> Sequence[Sink]:
    """Return the sinks that `decided` is published in: all but those that had kept the batch, or were apart."""
    others = decided.summary.ahead.keys() | sinks_apart(decided.summary)
    return [sink for sink in sinks if sink.name not in others]


def require_repeated(batch: Batch, *, summary: Summary, sinks: Sequence[Sink], ledger: Ledger) -> None:
    """Raise OffsetsConflict if a sink has kept a batch of this number that is not `batch`. Reads every newer entry then.

    Raises Refused for a sink of which the ledger does not tell any more which batches it has.
    """
    ahead = sinks_ahead(summary, batch.batch_id) & {sink.name for sink in sinks}
    if not ahead:
        return
    number, sink = batch.batch_id, min(ahead)
    lost = min((name for name in ahead if summary.ahead[name] == FOR_EVER), default=None)
    if lost is not None:
        raise Refused(
            f"Sink {lost!r} kept batches when the pipeline was rewound, and others came in their place while it was not there: "
            "the ledger does not tell which rows it has, and which it lacks.",
            remedy="Give the sink another name and an empty place, and let `penstock backfill` fill that.",
        )
    kept = _kept_batch(number, ledger)
    if kept is None:
        raise BatchForgotten(
            f"Sink {sink!r} kept batch {number} when the pipeline was rewound, and the ledger no longer holds what it was.",
            remedy=f"Take sink {sink!r} out of the pipeline.",
        )
    if kept != batch:
        raise OffsetsConflict(
            f"Sink {sink!r} kept batch {number} when the pipeline was rewound, but Spark now plans it with other offsets or "
            f"files: {described_offsets(batch.offsets)}, expected {described_offsets(kept.offsets)}.",
            remedy=f"Have Spark plan as before (the source's limit for each trigger){_anew(number)}; or take sink {sink!r} out "
            "of the pipeline.",
        )


def _anew(number: BatchId) -> str:
    """Return how a plan is dropped that was not decided: until then Spark runs it again, whatever the limit is by now."""
    if not number:
        return ", with a checkpoint that begins anew"
    return f", let it plan the batch anew by `penstock checkpoint rewind FILE --to-batch {number - 1} --yes`, and start again"


def sinks_astray(batch: Batch, *, summary: Summary, sinks: Sequence[Sink], ledger: Ledger) -> frozenset[SinkName]:
    """Return the sinks that kept another batch of this number, and are not in the pipeline, which goes on without them.

    By their numbers the batches that follow would be new to them, and hold rows that they have. Reads as `require_repeated`.
    """
    known = {sink for sink in sinks_ahead(summary, batch.batch_id) if summary.ahead[sink] != FOR_EVER}
    absent = frozenset(known - {sink.name for sink in sinks})
    return absent if absent and _kept_batch(batch.batch_id, ledger) != batch else frozenset()


def _kept_batch(number: BatchId, ledger: Ledger) -> Batch | None:
    decisions = (decision_in(entry) for entry in ledger.newest_first() if isinstance(entry.body, Decided))
    return next((decision.batch for decision in decisions if decision.batch.batch_id == number), None)
