"""Sinks and accounts that joined or left the pipeline since its newest decision, and what that decision means for them."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.commit.publication import decision_in, publication_of
from penstock.core.model import Entry, Publication, Summary
from penstock.errors import LedgerMismatch
from penstock.protocols import Sink


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
    """Sinks that were not in the pipeline when `newest` was decided: every row goes to every sink, and they got none."""
    decision = decision_in(newest)
    return [sink for sink in sinks if decision.rows_in and not decision.of_sink(sink.name)]


def share_of(sink: Sink, decided: Entry, summary: Summary) -> Publication:
    """The sink's share of `decided`. Once all is published it lacks the accounts that were taken out of the sink since."""
    share = publication_of(decided, sink.name, ledger_id=summary.ledger_id)
    if not _is_settled(decided, summary):
        return share
    return replace(share, staged=tuple(piece for piece in share.staged if piece.account in sink.accounts))


def _is_settled(decided: Entry, summary: Summary) -> bool:
    return decided.position == summary.published_at
