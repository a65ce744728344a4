"""The summary that every ledger entry carries, computed from the one before it at constant cost."""

from collections.abc import Iterable
from dataclasses import replace

from penstock.core.dropped_rows import sum_of
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    AccountName,
    Adopted,
    BatchId,
    Decision,
    Position,
    RemovalAccepted,
    SinkName,
    SinkTotals,
    Summary,
    Totals,
    new_ledger_id,
)


def after_opening(before: Summary | None) -> Summary:
    """Return the summary of the entry that opens a generation. It gives the ledger an identity where it has none.

    A new ledger gets the newest kind of digest. An older one keeps its own, since its totals are of that kind.
    """
    if before is None:
        return Summary(ledger_id=new_ledger_id(), row_digest=NEWEST_ROW_DIGEST)
    return before if before.ledger_id is not None else replace(before, ledger_id=new_ledger_id())


def after_decision(before: Summary, decision: Decision, *, position: Position) -> Summary:
    """Return the summary of the entry at `position` that records `decision`. All decisions before it are published."""
    return replace(
        before,
        query_id=decision.batch.query_id,
        next_batch_id=BatchId(decision.batch.batch_id + 1),
        decided_at=position,
        published_at=before.decided_at,
        totals=_added(before.totals, ((piece.sink, piece.account, piece.totals) for piece in decision.staged)),
        dropped=sum_of(before.dropped, decision.dropped),
    )


def after_adoption(before: Summary, adopted: Adopted, *, position: Position) -> Summary:
    """Return the summary of the entry at `position` that adopts another checkpoint."""
    return replace(before, query_id=adopted.query_id, next_batch_id=adopted.next_batch_id, adopted_at=position)


def after_removal(before: Summary, accepted: RemovalAccepted, *, position: Position) -> Summary:
    """Return the summary of the entry at `position` that accepts files as removed on purpose."""
    removed = _added(before.removed, ((each.sink, each.account, each.totals) for each in accepted.removals))
    return replace(before, removed=removed, removed_at=position)


def _added(
    before: SinkTotals, parts: Iterable[tuple[SinkName, AccountName, Totals]]
) -> dict[SinkName, dict[AccountName, Totals]]:
    sums = {sink: dict(accounts) for sink, accounts in before.items()}
    for sink, account, totals in parts:
        accounts = sums.setdefault(sink, {})
        accounts[account] = accounts.get(account, Totals()) + totals
    return sums
