"""Loading of rows from the spool into the table, inside a transaction that the caller opened and commits."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import Totals
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.database import disk_error
from penstock.sink.sqlite.statements import TableStatements
from penstock.sink.sqlite.storage import restored, stored
from penstock.sink.table.content import totals_under_key
from penstock.sink.table.publication import Loaded
from penstock.sink.table.storage import batch_of
from penstock.sink.table.target import Target

_VARIABLES = 900
"""Values bound by one execution; SQLite before 3.32 takes 999. Several rows per statement save a third of the time."""
_FETCHED_ROWS = 20_000

MOVE = FaultPoint("sqlite.move", "The rows of a decided batch are written into the table, in an open transaction.")


def load(cursor: sqlite3.Cursor, batches: Iterator["pa.RecordBatch"], target: Target) -> Loaded:
    """Write `batches` in their order. Of several rows with one key, `upsert` keeps the last and `insert_if_absent` the first."""
    with MOVE.around(error=disk_error, lost=disk_error):
        return _load(cursor, batches, target)


def _load(cursor: sqlite3.Cursor, batches: Iterator["pa.RecordBatch"], target: Target) -> Loaded:
    if target.write == "replace":
        cursor.execute(TableStatements(target.table, ()).clear())
    first = next(batches, None)
    if first is None:
        return Loaded(rows=0, displaced=Totals())
    statements = TableStatements(target.table, tuple(first.schema.names), target.key)
    batches = chain((first,), batches)
    if target.write in {"append", "replace"}:
        return Loaded(rows=_insert(cursor, statements.insert, batches), displaced=Totals())
    return _load_by_key(cursor, statements, batches, first.schema, target)


def _load_by_key(
    cursor: sqlite3.Cursor,
    statements: TableStatements,
    batches: Iterable["pa.RecordBatch"],
    schema: "pa.Schema",
    target: Target,
) -> Loaded:
    upsert = target.write == "upsert"
    _drop_displaced(cursor)
    cursor.execute(statements.create_displaced())
    cursor.execute(statements.note_replaced() if upsert else statements.note_skipped())
    rows = _insert(cursor, statements.upsert if upsert else statements.insert_if_absent, batches)
    displaced = totals_under_key(scan(cursor, statements.read_displaced(), schema), target.row_digest, table=target.table)
    _drop_displaced(cursor)
    return Loaded(rows=rows if upsert else rows + displaced.rows, displaced=displaced)


def _drop_displaced(cursor: sqlite3.Cursor) -> None:
    for statement in sql.DROP_DISPLACED:
        cursor.execute(statement)


def _insert(cursor: sqlite3.Cursor, statement: Callable[[int], str], batches: Iterable["pa.RecordBatch"]) -> int:
    return sum(_insert_batch(cursor, statement, batch) for batch in batches)


def _insert_batch(cursor: sqlite3.Cursor, statement: Callable[[int], str], batch: "pa.RecordBatch") -> int:
    width = batch.num_columns
    values: list[object] = [None] * (batch.num_rows * width)
    for index, column in enumerate(batch.columns):
        values[index::width] = stored(column)
    at_once = max(1, _VARIABLES // width)
    whole = batch.num_rows // at_once * at_once * width
    loaded = _execute(cursor, statement(at_once), values[:whole], width * at_once)
    return loaded + _execute(cursor, statement(1), values[whole:], width)


def _execute(cursor: sqlite3.Cursor, statement: str, values: list[object], width: int) -> int:
    if not values:
        return 0
    cursor.executemany(statement, (values[start : start + width] for start in range(0, len(values), width)))
    return cursor.rowcount


def scan(cursor: sqlite3.Cursor, query: str, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Yield the rows of `query`, whose columns are those of `schema`. Raises NotStoredError, naming the column."""
    cursor.execute(query)
    while rows := cursor.fetchmany(_FETCHED_ROWS):
        yield batch_of(rows, schema, restored)
