"""The summary that every ledger entry carries, computed from the one before it at constant cost."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from penstock.core.backfill import Backfilled, BackfillEnded, BackfillOpened, BackfillProgress
from penstock.core.dropped_rows import sum_of
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    AccountName,
    Adopted,
    BatchId,
    Decision,
    Position,
    RemovalAccepted,
    Rewound,
    SinkName,
    SinkTotals,
    Staged,
    Summary,
    Totals,
    new_ledger_id,
)
from penstock.core.replay import Replayed


def after_opening(before: Summary | None) -> Summary:
    """Return the summary of the entry that opens a generation. It gives the ledger an identity where it has none.

    A new ledger gets the newest kind of digest. An older one keeps its own, since its totals are of that kind.
    """
    if before is None:
        return Summary(ledger_id=new_ledger_id(), row_digest=NEWEST_ROW_DIGEST)
    return before if before.ledger_id is not None else replace(before, ledger_id=new_ledger_id())


def awaiting(before: Summary, sinks: Collection[SinkName]) -> Summary:
    """Return the summary of the entry that opens a run with `sinks`: those that are apart may join it once they are level."""
    backfills = {
        name: replace(progress, awaited=name in sinks) if progress.apart else progress
        for name, progress in before.backfills.items()
    }
    return replace(before, backfills=backfills)


FOR_EVER = BatchId(2**53 - 1)
"""The newest batch of a sink that is ahead, where the ledger does not tell any more which batches it has: it takes none."""


def after_decision(
    before: Summary, decision: Decision, *, position: Position, astray: Collection[SinkName] = frozenset()
) -> Summary:
    """Return the summary of the entry at `position` that records `decision`. All decisions before it are published.

    `astray`: sinks that are ahead of other batches than this one and those before it.
    """
    ahead = {sink: newest for sink, newest in before.ahead.items() if decision.batch.batch_id <= newest}
    return replace(
        before,
        query_id=decision.batch.query_id,
        next_batch_id=BatchId(decision.batch.batch_id + 1),
        decided_at=position,
        published_at=before.decided_at,
        totals=_with(before.totals, decision.staged),
        ahead={**ahead, **dict.fromkeys(astray, FOR_EVER)},
        dropped=sum_of(before.dropped, decision.dropped),
        backfills=_lacking(before, position) if decision.rows_in else before.backfills,
    )


def _lacking(before: Summary, position: Position) -> dict[SinkName, BackfillProgress]:
    """Return the progress of backfills once the decision at `position` was made without the sinks that are apart."""
    return {
        name: replace(progress, lacking=position) if progress.apart else progress for name, progress in before.backfills.items()
    }


def after_adoption(before: Summary, adopted: Adopted, *, position: Position) -> Summary:
    """Return the summary of the entry at `position` that adopts another checkpoint.

    A sink that is ahead takes the batches of the adopted checkpoint, as all do: what it kept says nothing of those. It stays
    ahead where the same query goes on behind a gap, and where the ledger does not tell what it has.
    """
    goes_on = adopted.query_id == before.query_id and (adopted.gaps or adopted.next_batch_id > (before.next_batch_id or 0))
    return replace(
        before,
        query_id=adopted.query_id,
        next_batch_id=adopted.next_batch_id,
        adopted_at=position,
        ahead={sink: newest for sink, newest in before.ahead.items() if goes_on or newest == FOR_EVER},
    )


def after_backfilled(before: Summary, backfilled: Backfilled, *, position: Position) -> Summary:
    """Return the summary of the entry at `position` that decides an earlier batch for one sink."""
    original = backfilled.original
    begun = BackfillProgress(first=original, through=original, newest=position, ended=False)
    earlier = before.backfills.get(backfilled.sink)
    progress = begun if earlier is None else replace(earlier, through=original, newest=position, ended=False)
    staged = backfilled.decision.staged
    given = replace(before, totals=_with(before.totals, staged), backfills={**before.backfills, backfilled.sink: progress})
    if all(piece.sink == backfilled.sink for piece in staged):
        return given
    return replace(given, replayed_at=position, replaying_at=position)


def after_replayed(before: Summary, replayed: Replayed, *, position: Position) -> Summary:
    """Return the summary of the entry at `position` that delivers records of the quarantine."""
    decision = replayed.decision
    return replace(
        before,
        totals=_with(before.totals, decision.staged),
        dropped=sum_of(before.dropped, decision.dropped),
        replayed_at=position,
        replaying_at=position,
    )


def after_published(before: Summary) -> Summary:
    """Return the summary of an entry whose writer knows that everything decided is published, except by backfills."""
    return replace(before, published_at=before.decided_at, replaying_at=None)


def after_backfill(before: Summary, sink: SinkName) -> Summary:
    """Return the summary of an entry whose writer knows that all that the sink was given is published."""
    progress = before.backfills.get(sink)
    return before if progress is None else replace(before, backfills={**before.backfills, sink: replace(progress, ended=True)})


def after_backfill_opened(before: Summary, opened: BackfillOpened, *, first: Position) -> Summary:
    """Return the summary of the entry that begins to give a sink batches beside the driver, from the one at `first` on.

    A sink that was given some before goes on behind these. What it lacks may be less than the newest decision.
    """
    before_it = Position(first - 1)
    nothing = BackfillProgress(first=first, through=before_it, newest=Position(0), ended=True)
    earlier = before.backfills.get(opened.sink, nothing)
    awaited, through = earlier.apart and earlier.awaited, max(earlier.through, before_it)
    progress = replace(earlier, through=through, writer=opened.writer, apart=True, lacking=before.decided_at, awaited=awaited)
    return replace(before, backfills={**before.backfills, opened.sink: progress})


def after_backfill_ended(before: Summary, ended: BackfillEnded) -> Summary:
    """Return the summary of an entry whose writer knows that the sink lacks nothing that was decided before it."""
    earlier = before.backfills[ended.sink]
    through = max(earlier.through, earlier.lacking or Position(0))
    progress = replace(earlier, through=through, ended=True, apart=not ended.joins, awaited=earlier.awaited and not ended.joins)
    return replace(before, backfills={**before.backfills, ended.sink: progress})


def after_removal(before: Summary, accepted: RemovalAccepted, *, position: Position) -> Summary:
    """Return the summary of the entry at `position` that accepts files as removed on purpose."""
    removed = _added(before.removed, ((each.sink, each.account, each.totals) for each in accepted.removals))
    return replace(before, removed=removed, removed_at=position)


def after_rewind(before: Summary, rewound: Rewound, *, target: Summary, unremoved: SinkTotals, position: Position) -> Summary:
    """Return the summary of the entry at `position` that takes back all batches after the decision whose summary is `target`.

    `unremoved`: what was removed on purpose of those batches, as far as it counts in `before.removed`.
    """
    assert before.next_batch_id is not None
    kept = {sink: before.totals[sink] for sink in rewound.kept if sink in before.totals}
    taken = ((sink, account, totals) for sink, accounts in unremoved.items() for account, totals in accounts.items())
    return replace(
        before,
        next_batch_id=BatchId(rewound.batch_id + 1),
        decided_at=rewound.to,
        published_at=rewound.to,
        totals={**{sink: of for sink, of in target.totals.items() if sink not in rewound.kept}, **kept},
        removed=_added(before.removed, ((sink, account, Totals() - totals) for sink, account, totals in taken)),
        dropped=target.dropped,
        rewound_at=position,
        rewinding_at=position,
        ahead={sink: before.ahead.get(sink, BatchId(before.next_batch_id - 1)) for sink in rewound.kept},
        backfills={
            sink: replace(progress, lacking=min(progress.lacking or rewound.to, rewound.to)) if progress.apart else progress
            for sink, progress in before.backfills.items()
        },
    )


def after_late_keeping(before: Summary, *, sinks: Iterable[SinkName], unrewound: Summary, position: Position) -> Summary:
    """Return the summary of the entry at `position` by which `sinks` keep what an unfinished rewind took back from them.

    `unrewound`: the summary before that rewind. What they have lost meanwhile is not known, so they take no batch any more.
    """
    names = frozenset(sinks)
    return replace(
        before,
        totals={**before.totals, **{sink: of for sink, of in unrewound.totals.items() if sink in names}},
        removed={**before.removed, **{sink: of for sink, of in unrewound.removed.items() if sink in names}},
        ahead={**before.ahead, **dict.fromkeys(names, FOR_EVER)},
        rewound_at=position,
    )


def after_finished_rewind(before: Summary) -> Summary:
    """Return the summary of an entry whose writer knows that the newest rewind is carried out everywhere."""
    return replace(before, rewinding_at=None)


def _with(before: SinkTotals, staged: Iterable[Staged]) -> dict[SinkName, dict[AccountName, Totals]]:
    return _added(before, ((piece.sink, piece.account, piece.totals) for piece in staged))


def _added(
    before: SinkTotals, parts: Iterable[tuple[SinkName, AccountName, Totals]]
) -> dict[SinkName, dict[AccountName, Totals]]:
    sums = {sink: dict(accounts) for sink, accounts in before.items()}
    for sink, account, totals in parts:
        accounts = sums.setdefault(sink, {})
        accounts[account] = accounts.get(account, Totals()) + totals
    return sums
