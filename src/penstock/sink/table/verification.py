"""The table against its marker, and the marker against the ledger; every row is read."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.model import ONLY_ACCOUNT, AccountReport, Problem, Publication, SinkName, SinkReport, Totals
from penstock.sink.table.marker import TableMarker, minus
from penstock.sink.table.target import MERGE, NotStoredError

_NONE = Totals()


def compare(
    marker: TableMarker | None,
    *,
    sink: SinkName,
    table: str,
    expected: Totals,
    known: Iterator[Publication],
    content: Callable[[TableMarker], Totals],
) -> SinkReport:
    """What the table shows because of this sink, against what the ledger expects, in one snapshot.

    `content` counts the rows of the table, or raises NotStoredError.
    """
    if marker is None:
        return without_marker(expected, f"Table {table!r} has no marker of sink {sink!r} in the database.")
    # An upsert shows fewer rows than were decided: to the marker's own count comes what the ledger has more than the marker.
    ahead = minus(expected, marker.decided)
    wanted = marker.after + ahead
    owner = [] if marker.sink == sink else [Problem(message=f"Table {table!r} is filled by sink {marker.sink!r}.", file=table)]
    try:
        found = minus(content(marker), marker.before)
    except NotStoredError as cause:
        return _report(wanted, _NONE, [*owner, Problem(message=f"Table {table!r}: {cause}.", file=table)])
    report = _report(wanted, found, [*owner, *_explained(marker, ahead, minus(found, marker.after), known)])
    return replace(report, unread=marker.write == MERGE)


def without_marker(expected: Totals, message: str) -> SinkReport:
    """The report where nothing tells what was published: fine only if nothing was decided either."""
    wanted = Totals(rows=expected.rows, digest=expected.digest)
    return _report(wanted, _NONE, [Problem(message=message)] if expected.rows else [])


def _report(expected: Totals, found: Totals, problems: list[Problem]) -> SinkReport:
    return SinkReport(accounts={ONLY_ACCOUNT: AccountReport(expected=expected, found=found)}, problems=tuple(problems))


def _explained(marker: TableMarker, ahead: Totals, surplus: Totals, known: Iterator[Publication]) -> list[Problem]:
    """What the ledger and the table have more than the marker; named by batch where one fits."""
    if not (_differs(ahead) or _differs(surplus)):
        return []
    problems, table = [], marker.table_name
    for publication in known:
        batch = Totals(rows=publication.totals.rows, digest=publication.totals.digest)
        if publication.position > marker.position:
            problems.append(_of_batch(table, publication, "is decided but not published in"))
            ahead = minus(ahead, batch)
        elif _differs(surplus) and batch in {surplus, minus(_NONE, surplus)}:
            problems.append(_of_batch(table, publication, "is twice in" if batch == surplus else "is no more in"))
            surplus = _NONE
    if _differs(ahead):
        counted = f"The marker of table {table!r} is at position {marker.position} and counts {marker.decided.rows} rows"
        problems.append(Problem(message=f"{counted}; the ledger has {ahead.rows:+d} rows and another digest.", file=table))
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
