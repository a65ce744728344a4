"""Directories of accounts that somebody removed. Markers stand elsewhere, so a start makes them anew, without their rows."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

from penstock.commit.publication import decision_in
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import AccountName, PipelineName, Summary, Totals
from penstock.errors import PublishFailed, Refused, Retryable
from penstock.protocols import HasMarker, Ledger, Sink
from penstock.run.ledger_match import Markers, Place, published_rows
from penstock.support.formatting import counted


@runtime_checkable
class HasDirectories(Protocol):
    """A sink of which an account may be a directory, with its marker elsewhere."""

    def missing_directory(self, account: AccountName) -> str | None:
        """Return the directory of `account` if it is not there; None if it is, or the account is none. Costs one look at it.

        Raises Retryable, PublishFailed if the directory cannot be looked at.
        """
        ...


def missing_directory(sink: Sink, account: AccountName) -> str | None:
    """Return the directory of an account that is not there, None if it is or the sink has none. Raises as HasDirectories."""
    return sink.missing_directory(account) if isinstance(sink, HasDirectories) else None


def removed_directories(ledger: Ledger, sinks: Sequence[Sink], markers: Markers, *, pipeline: PipelineName) -> Iterator[Refused]:
    """Yield what to tell of each account with rows whose directory is gone. `markers` were read already.

    Costs a look at the directory of each account. Of one without, `markers` may lack the marker, which is read then: all of its
    rows may be of the newest decision. An account that cannot be looked at is passed over: the start fails when it prepares it,
    and says so with the advice of a start.
    """
    for sink in sinks if ledger.tail() is not None else ():
        for account in sink.accounts:
            gone = None
            with suppress(PublishFailed, Retryable):
                gone = _removed_directory(ledger, sink, account, markers, pipeline=pipeline)
            if gone is not None:
                yield gone


def _removed_directory(
    ledger: Ledger, sink: Sink, account: AccountName, markers: Markers, *, pipeline: PipelineName
) -> Refused | None:
    directory, place = missing_directory(sink, account), (sink.name, account)
    if directory is None or not isinstance(sink, HasMarker):
        return None
    mark = markers[place] if place in markers else sink.high_water_mark(account, pipeline=pipeline)
    if mark is None:
        return None
    certain = published_rows(ledger, (sink,)).get(place, 0)
    return rows_gone(ledger, place, directory=directory, mark=mark, certain=certain)


def rows_gone(ledger: Ledger, place: Place, *, directory: str, mark: HighWaterMark, certain: int) -> Refused | None:
    """Return what to tell of a missing `directory`; None if no row should be there.

    `certain` rows were published there by what the ledger records, which is one batch behind what `mark` shows. What an operator
    accepted as removed on purpose is not expected.
    """
    sink, account = place
    tail = ledger.tail()
    if tail is None:
        return None
    rows = certain + _shown_since(ledger, tail.summary, place, mark)
    rows -= tail.summary.removed.get(sink, {}).get(account, Totals()).rows
    if rows <= 0:
        return None
    return Refused(
        f"The directory {directory} of account {account!r} of sink {sink!r} is gone, and {counted(rows, 'row')} with it that "
        f"{'was' if rows == 1 else 'were'} published. A start goes on without them.",
        remedy="Stop the driver and put the directory back from a backup. If it was removed on purpose, put that on record: "
        "`penstock verify FILE --accept-removed`.",
    )


def _shown_since(ledger: Ledger, summary: Summary, place: Place, mark: HighWaterMark) -> int:
    """Return the rows of the newest decision in `place` if `mark` shows them and the ledger does not record that yet."""
    decided_at = summary.decided_at
    if decided_at is None or decided_at == summary.published_at or mark.position < decided_at:
        return 0
    newest = ledger.read(decided_at)
    staged = () if newest is None else decision_in(newest).staged
    return sum(piece.totals.rows for piece in staged if (piece.sink, piece.account) == place)
