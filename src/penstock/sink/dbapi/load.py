"""The load of a batch from the spool over any driver, inside a transaction that the caller opened and will commit."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import RowDigest, Totals
from penstock.sink.dbapi.database import connection_lost
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.statements import TableStatements
from penstock.sink.dbapi.storage import STORAGES, values_of
from penstock.sink.table.publication import Loaded, totals_of
from penstock.sink.table.target import Target

MOVE = FaultPoint("dbapi.move", "Rows of a decided batch are written into the table, in an open transaction.")

_ROWS_AT_ONCE = 1_000


def load(
    session: Session, batches: Iterable["pa.RecordBatch"], statements: TableStatements, target: Target, *, by_count: bool
) -> Loaded:
    """Write `batches` in their order. Of several rows with one key, `insert_if_absent` keeps the first.

    The number of rows written is the driver's, or with `by_count` the difference of the table's row counts.
    """
    with MOVE.around(error=connection_lost, lost=connection_lost):
        if target.write == "replace":
            session.execute(statements.clear())
        before = count(session, statements) if by_count else 0
        written, skipped = _write(session, batches, statements, target)
        if by_count:
            written = count(session, statements) - before
    return Loaded(rows=written + skipped.rows, displaced=skipped)


def count(session: Session, statements: TableStatements) -> int:
    """Return how many rows the table has."""
    [rows] = session.execute(statements.count).fetchall()[0]
    return int(rows)


def _write(
    session: Session, batches: Iterable["pa.RecordBatch"], statements: TableStatements, target: Target
) -> tuple[int, Totals]:
    """Write the rows. Return how many were written, as the driver reports, and the totals of those skipped."""
    written, skipped = 0, Totals()
    for batch in batches:
        if target.write == "insert_if_absent":
            rows, left = _insert_absent(session, batch, statements, target.row_digest)
            written, skipped = written + rows, skipped + left
        else:
            written += _insert(session, batch, statements)
    return written, skipped


def scan(session: Session, query: str, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Return the rows of `query`, whose columns are those of `schema`. Raise NotStoredError, naming the column."""
    return STORAGES.batches(session.execute(query).fetched(), schema)


def rows_of(batch: "pa.RecordBatch") -> Sequence[Sequence[Any]]:
    """Return the rows as the DB-API takes them."""
    return list(zip(*(values_of(column) for column in batch.columns), strict=True))


def _insert(session: Session, batch: "pa.RecordBatch", statements: TableStatements) -> int:
    rows = rows_of(batch)
    starts = range(0, len(rows), _ROWS_AT_ONCE)
    return sum(session.execute_many(statements.insert, rows[start : start + _ROWS_AT_ONCE]) for start in starts)


def _insert_absent(
    session: Session, batch: "pa.RecordBatch", statements: TableStatements, row_digest: RowDigest
) -> tuple[int, Totals]:
    """Insert the rows whose key is absent. Return how many were written, and the totals of those skipped.

    The database decides which keys it has: whether case or blanks count is its own rule.
    """
    rows, skipped, written = rows_of(batch), [], 0
    places = [batch.schema.names.index(name) for name in statements.key]
    keys = [tuple(row[place] for place in places) for row in rows]
    for start, end in _spans(keys, statements.rows_at_once):
        values = {f"r{row}k{at}": value for row, key in enumerate(keys[start:end]) for at, value in enumerate(key)}
        found = session.execute(statements.present(end - start), values).fetchall()
        there = {int(row) for (row,) in found}
        written += session.execute_many(statements.insert, [row for at, row in enumerate(rows[start:end]) if at not in there])
        skipped += [start + at for at in sorted(there)]
    return written, totals_of(iter([batch.take(pa.array(skipped, pa.int64()))]), row_digest)


def _spans(keys: Sequence[Sequence[Any]], most: int) -> Iterator[tuple[int, int]]:
    """Yield spans without two keys that some database may take for one: the second must find the first in the table."""
    start, seen = 0, set[object]()
    for at, key in enumerate(keys):
        folded = tuple(map(_folded, key))
        if folded in seen or at - start == most:
            yield start, at
            start, seen = at, set()
        seen.add(folded)
    yield start, len(keys)


def _folded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", value) if not unicodedata.combining(sign))
    return plain.casefold().rstrip()
