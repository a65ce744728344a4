"""Loading of rows from the spool into the table, inside a transaction that the caller opened and commits."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import Totals
from penstock.sink.spool.deletes import runs_of
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.database import disk_error
from penstock.sink.sqlite.statements import TableStatements
from penstock.sink.sqlite.storage import stored
from penstock.sink.sqlite.table_schema import TABLES, TableSchema, with_row_numbers
from penstock.sink.table.history import VALID_FROM
from penstock.sink.table.publication import Loaded, totals_of
from penstock.sink.table.target import BY_KEY, Target

_VARIABLES = 900
"""Values bound by one execution; SQLite before 3.32 takes 999. Several rows per statement save a third of the time."""

MOVE = FaultPoint("sqlite.move", "The rows of a decided batch are written into the table, in an open transaction.")


def load(
    connection: sqlite3.Connection,
    batches: Iterator["pa.RecordBatch"],
    rows: "pa.Schema",
    table_schema: TableSchema,
    target: Target,
) -> Loaded:
    """Write `batches` as `SqlSink._write` specifies."""
    with MOVE.around(error=disk_error, lost=disk_error):
        statements, cursor = TABLES.statements_of(rows, target), connection.cursor()
        if target.write == "replace":
            cursor.execute(statements.clear())
        if target.deletes:
            return _load_changes(cursor, batches, rows, table_schema, target)
        batches = with_row_numbers(table_schema, batches, target)
        if target.write in BY_KEY:
            return _load_by_key(cursor, statements, batches, rows, target)
        return Loaded(rows=_insert(cursor, statements.insert, batches), displaced=Totals())


def read_there(
    connection: sqlite3.Connection, keys: "pa.Table", rows: "pa.Schema", _: TableSchema, target: Target
) -> Iterator["pa.RecordBatch"]:
    """Yield the table's rows under `keys`, as `SqlSink._read_there` specifies. The transaction keeps all others out."""
    statements, cursor = TABLES.statements_of(rows, target), connection.cursor()
    columns = keys.schema.names
    cursor.execute(sql.DROP_KEYS)
    cursor.execute(statements.create_keys(columns))
    for batch in keys.to_batches():
        cursor.executemany(statements.insert_keys(columns), zip(*map(stored, batch.columns), strict=True))
    yield from TABLES.scan(connection, statements.read_compared(since=VALID_FROM in columns), rows)
    cursor.execute(sql.DROP_KEYS)


def _load_by_key(
    cursor: sqlite3.Cursor,
    statements: TableStatements,
    batches: Iterable["pa.RecordBatch"],
    schema: "pa.Schema",
    target: Target,
) -> Loaded:
    upsert = target.write == "upsert"
    _note_displaced(cursor, statements, statements.note_replaced() if upsert else statements.note_skipped())
    if statements.sequence_by is not None:
        cursor.execute(statements.note_outdated())
    rows = _insert(cursor, statements.upsert if upsert else statements.insert_if_absent, batches)
    displaced, outdated = _displaced(cursor, statements, schema, target)
    return Loaded(rows=rows if upsert else rows + displaced.rows, displaced=displaced).leaving_out(outdated)


def _load_changes(
    cursor: sqlite3.Cursor, batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", table_schema: TableSchema, target: Target
) -> Loaded:
    """Upsert and delete in the order of the rows, so that the last one of each key decides."""
    statements = TABLES.statements_of(schema, target)
    _note_displaced(cursor, statements, statements.note_replaced(), statements.note_deleted())
    upserted, deleting = 0, Totals()
    for deletes, rows in runs_of(batches):
        if deletes:
            _delete(cursor, statements, rows)
            deleting += totals_of(iter([rows]), target.row_digest)
        else:
            upserted += _insert(cursor, statements.upsert, with_row_numbers(table_schema, iter([rows]), target))
    displaced, _ = _displaced(cursor, statements, schema, target)
    return Loaded(rows=upserted, displaced=displaced).leaving_out(deleting)


def _delete(cursor: sqlite3.Cursor, statements: TableStatements, rows: "pa.RecordBatch") -> None:
    columns = {name.lower(): column for name, column in zip(rows.schema.names, rows.columns, strict=True)}
    keys = zip(*(stored(columns[name.lower()]) for name in statements.key), strict=True)
    cursor.executemany(statements.delete(), keys)


def _note_displaced(cursor: sqlite3.Cursor, statements: TableStatements, *triggers: str) -> None:
    """Have this connection save rows of the table that are displaced."""
    _drop_displaced(cursor)
    for statement in (*statements.create_noted(), *triggers):
        cursor.execute(statement)


def _displaced(cursor: sqlite3.Cursor, statements: TableStatements, schema: "pa.Schema", target: Target) -> tuple[Totals, Totals]:
    """Return the totals of the saved rows, of the table or skipped, and of those that were older; then stop saving."""
    totals = TABLES.totals(cursor.connection, schema, target)
    displaced, outdated = totals(statements.read_displaced()), totals(statements.read_outdated())
    _drop_displaced(cursor)
    return displaced, outdated


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
