"""Verification of a table by reading every row: rows against the marker, and the marker against the ledger as of its position."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.core.model import ONLY_ACCOUNT, AccountReport, Position, Problem, Publication, SinkName, SinkReport, Totals
from penstock.errors import Retryable
from penstock.protocols import SinkDecisions
from penstock.sink.table.marker import TableMarker, minus
from penstock.sink.table.target import MERGE, NotStoredError

_NONE = Totals()


def compare(
    marker: TableMarker | None,
    *,
    sink: SinkName,
    table: str,
    decisions: SinkDecisions,
    content: Callable[[TableMarker], Totals],
    whole_batches: bool = True,
) -> SinkReport:
    """Compare what the table shows because of this sink with what the ledger expects as of the marker's position.

    `content` counts the rows of the table in the snapshot in which the marker was read, or raises NotStoredError. Unless
    `whole_batches`, rows become visible before their marker does: Retryable is raised while a batch may be there in part.
    """
    if marker is None:
        return without_marker(decisions, f"Table {table!r} has no marker of sink {sink!r} in the database.")
    # The ledger is read after the marker, so that the marker is never ahead of it.
    position = max(marker.position, decisions.published_at)
    expected = decisions.totals(position).get(ONLY_ACCOUNT, _NONE)
    # An upsert shows fewer rows than were decided, so what the ledger has beyond the marker is added to the marker's own count.
    unpublished = minus(expected, marker.decided)
    wanted = marker.after + unpublished
    owner = [] if marker.sink == sink else [Problem(message=f"Table {table!r} is filled by sink {marker.sink!r}.", file=table)]
    try:
        held = content(marker)
    except NotStoredError as cause:
        return _report(wanted, _NONE, [*owner, Problem(message=f"Table {table!r}: {cause}.", file=table)], as_of=position)
    found, surplus = minus(held, marker.before), minus(held, marker.shown)
    if not whole_batches and _differs(surplus):
        _require_nothing_newer(decisions, position, table)
    problems = _explained(marker, unpublished, surplus, decisions.publications(position))
    return replace(_report(wanted, found, [*owner, *problems], as_of=position), unread=marker.write == MERGE)


def without_marker(decisions: SinkDecisions, message: str) -> SinkReport:
    """Return the report of a table without a marker, in which a problem is listed only if something was published."""
    position = decisions.published_at
    expected = decisions.totals(position).get(ONLY_ACCOUNT, _NONE)
    wanted = Totals(rows=expected.rows, digest=expected.digest)
    return _report(wanted, _NONE, [Problem(message=message)] if expected.rows else [], as_of=position)


def _require_nothing_newer(decisions: SinkDecisions, position: Position, table: str) -> None:
    """Raise Retryable if a batch after `position` may be there in part: nobody can tell its rows from foreign ones."""
    newest = next(decisions.publications(), None)
    if newest is not None and newest.position > position and newest.staged:
        raise Retryable(
            f"Batch {newest.batch.batch_id} was being written into table {table!r} while its rows were read.",
            remedy="Verify again. If no driver runs, `penstock recover` publishes the batch first.",
        )


def _report(expected: Totals, found: Totals, problems: list[Problem], *, as_of: Position) -> SinkReport:
    """Return the report, negative row counts as 0: older rows are gone, or the ledger counts less, as `problems` state."""
    account = AccountReport(expected=_of_none_or_more(expected), found=_of_none_or_more(found))
    return SinkReport(accounts={ONLY_ACCOUNT: account}, problems=tuple(problems), as_of=as_of)


def _of_none_or_more(difference: Totals) -> Totals:
    return replace(difference, rows=max(difference.rows, 0))


def _explained(marker: TableMarker, unpublished: Totals, surplus: Totals, known: Iterator[Publication]) -> list[Problem]:
    """Return what the ledger and the table have beyond the marker as problems, one for each batch that matches."""
    if not (_differs(unpublished) or _differs(surplus)):
        return []
    problems, table, ledger_rows = [], marker.table_name, marker.decided.rows + unpublished.rows
    for publication in known:
        batch = Totals(rows=publication.totals.rows, digest=publication.totals.digest)
        if publication.position > marker.position:
            problems.append(_of_batch(table, publication, "is decided but not published in"))
            unpublished = minus(unpublished, batch)
        elif _differs(surplus) and batch in {surplus, minus(_NONE, surplus)}:
            problems.append(_of_batch(table, publication, "is twice in" if batch == surplus else "is no more in"))
            surplus = _NONE
    if _differs(unpublished):
        counted = f"The marker of table {table!r} is at position {marker.position} and counts {marker.decided.rows} rows"
        problems.append(Problem(message=f"{counted}; the ledger counts {ledger_rows}, or another digest.", file=table))
    if _differs(surplus):
        problems.append(Problem(message=f"Table {table!r} {_what(surplus.rows)}.", file=table))
    return problems


def _differs(difference: Totals) -> bool:
    return bool(difference.rows or difference.digest)


def _of_batch(table: str, publication: Publication, what: str) -> Problem:
    batch_id = publication.batch.batch_id
    message = f"Batch {batch_id} with {publication.totals.rows} rows {what} table {table!r}."
    return Problem(message=message, file=table, batch_id=batch_id)


def _what(rows: int) -> str:
    if rows > 0:
        return f"holds {rows} rows more than were published into it: doubled or foreign"
    if rows < 0:
        return f"lacks {-rows} of the rows that were published into it"
    return "holds as many rows as were published into it, but other values"
