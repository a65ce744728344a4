"""Are the places still there that were delivered into: an empty directory at a mount point looks like a new account."""

from collections.abc import Iterator

from penstock.commit.publication import decision_in
from penstock.errors import Refused
from penstock.model import AccountName, Decision, Entry, PipelineName, Summary, Totals
from penstock.protocols import Ledger, Remembering, Sink


def require_present(ledger: Ledger, sinks: tuple[Sink, ...], *, pipeline: PipelineName) -> None:
    """Raise Refused for an account that remembers nothing, though rows were published there. Costs two reads of the ledger.

    Called before anything is prepared, so that nothing is created below a mount point. The newest decision is left out: it may
    not have been published yet.
    """
    tail = ledger.tail()
    if tail is None:
        return
    newest = _unsettled(ledger, tail)
    for sink in sinks:
        for account, rows in _published(sink, tail.summary, newest):
            if isinstance(sink, Remembering) and not sink.remembers(account, pipeline=pipeline):
                raise Refused(
                    f"Account {account!r} of sink {sink.name!r} shows no trace of the {rows:,} rows that were published there: "
                    "it was removed, or something else is mounted in its place.",
                    remedy="Mount it or restore it, with its marker, and start again. To go on without those rows, "
                    "give the sink another name.",
                )


def _unsettled(ledger: Ledger, tail: Entry) -> Decision | None:
    decided_at = tail.summary.decided_at
    if decided_at is None or decided_at == tail.summary.published_at:
        return None
    entry = ledger.read(decided_at)
    return None if entry is None else decision_in(entry)


def _published(sink: Sink, summary: Summary, newest: Decision | None) -> Iterator[tuple[AccountName, int]]:
    """The sink's accounts that hold rows for certain, and how many."""
    totals = summary.totals.get(sink.name, {})
    for account in sink.accounts:
        pending = () if newest is None else newest.of_sink(sink.name)
        rows = totals.get(account, Totals()).rows - sum(piece.totals.rows for piece in pending if piece.account == account)
        if rows > 0:
            yield account, rows
