"""Loading of rows from the spool into the table, inside a transaction that the caller opened and commits."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.cursors import Cursor

from penstock.core.faults import FaultPoint
from penstock.core.model import RowDigest, Totals
from penstock.errors import Conflict, PublishFailed
from penstock.sink.mysql import statements as sql
from penstock.sink.mysql import table_statements as stage
from penstock.sink.mysql.decided_rows import required
from penstock.sink.mysql.storage import STORAGES, storage_of
from penstock.sink.mysql.table_schema import TableSchema, statements_of
from penstock.sink.mysql.table_statements import TableStatements
from penstock.sink.mysql.wire import LOAD_OPTIONS, lines, numbered_lines, rows_of_insert
from penstock.sink.table.publication import Loaded, totals_under_key
from penstock.sink.table.script import Script
from penstock.sink.table.target import BY_KEY, Target
from penstock.sql.mysql.connection import Connection, LoadAnswer
from penstock.sql.mysql.errors import (
    CONSTRAINTS,
    DUPLICATE,
    UNPARTITIONED,
    code_of,
    connection_lost,
    index_of,
    reason_of,
    without_values,
)

LOAD = FaultPoint("mysql.load", "The rows of a decided batch are sent to the server, into a temporary table or the user's.")
MOVE = FaultPoint("mysql.move", "The rows get into the table, in an open transaction.")

_INSERT_BYTES = 100_000
"""Bytes of one INSERT of many rows. Measured: the server takes more time per row for longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The statements about the table, how each column is read, and the unique indexes on exactly the key."""

    statements: TableStatements
    schema: "pa.Schema"
    row_digest: RowDigest
    read: tuple[str, ...]
    key_indexes: frozenset[str]


def load(
    connection: Connection,
    batches: Iterator["pa.RecordBatch"],
    schema: "pa.Schema",
    table_schema: TableSchema,
    target: Target,
) -> Loaded:
    """Write `batches` in their order. Of several rows with one key, `upsert` keeps the last and `insert_if_absent` the first.

    Raises Conflict if another session writes rows with the same keys at the same time.
    """
    columns = _Columns(
        statements=statements_of(schema, target),
        schema=schema,
        row_digest=target.row_digest,
        read=tuple(storage_of(field.type).read for field in schema),
        key_indexes=table_schema.tells_apart_by(target.key),
    )
    directly, staged = connection.server.loads and _goes_directly(table_schema, target), 0
    if not directly:
        create_stage(connection, columns.statements, schema)
        staged = _sent(lambda: fill_stage(connection, columns.statements, batches))
    with MOVE.around(error=connection_lost, lost=connection_lost):
        if directly:
            return _load_in(connection, columns.statements, batches, target.write)
        if target.merge is not None:
            run(connection, columns.statements, target.merge)
            return Loaded(rows=staged, displaced=Totals())  # only the user knows what the SQL writes
        return _load(connection, columns, target.write, staged)


def write(
    connection: Connection,
    batches: Iterator["pa.RecordBatch"],
    schema: "pa.Schema",
    table_schema: TableSchema,
    target: Target,
) -> Loaded:
    """Load decided batches. Raises Refused for a value that the table would change by now."""
    decided = required(batches, table_schema, schema, target, connection.server)
    return load(connection, decided, schema, table_schema, target)


def content(connection: Connection, schema: "pa.Schema", target: Target) -> Iterator["pa.RecordBatch"]:
    """Yield every row of the table. Raises NotStoredError."""
    query = statements_of(schema, target).read([storage_of(field.type).read for field in schema])
    return STORAGES.batches(connection.stream(query), schema)


def _goes_directly(table_schema: TableSchema, target: Target) -> bool:
    """Return whether LOAD DATA can fill the table itself: it looks up no key, and stores bytes without converting texts."""
    return (
        target.merge is None and target.write not in BY_KEY and all(column.takes_bytes_as_sent for column in table_schema.columns)
    )


def _load_in(connection: Connection, statements: TableStatements, batches: Iterator["pa.RecordBatch"], write: str) -> Loaded:
    """Load the rows into the table itself, which writes them once instead of twice."""
    if write == "replace":
        connection.execute(statements.clear())
    statement = statements.load_in(LOAD_OPTIONS)
    return Loaded(rows=_sent(lambda: _load_data(connection, statement, map(lines, batches))), displaced=Totals())


def _sent(send: Callable[[], int]) -> int:
    with LOAD.around(error=connection_lost, lost=connection_lost):
        return send()


def run(connection: Connection, statements: TableStatements, script: Script) -> None:
    """Run the user's own SQL over the staging table. The client takes one statement at a time."""
    for statement in script.naming(staged=sql.STAGE, table=statements.name):
        connection.execute(statement)


def create_stage(connection: Connection, statements: TableStatements, schema: "pa.Schema") -> None:
    """Create an empty staging table for rows of `schema`."""
    connection.execute(stage.DROP_STAGE)
    declared = [storage_of(field.type).declared(field.type) for field in schema]
    connection.execute(statements.create_stage(declared, connection.server.exact_collation))


def fill_stage(connection: Connection, statements: TableStatements, batches: Iterator["pa.RecordBatch"]) -> int:
    """Fill the staging table and return the number of rows."""
    if connection.server.loads:
        return _load_data(connection, statements.load(LOAD_OPTIONS), _numbered(batches))
    staged = 0
    for batch in batches:
        inserts = rows_of_insert(batch, staged, min(_INSERT_BYTES, connection.server.max_packet // 2))
        staged += sum(_execute_strictly(connection, statements.insert_values() + rows) for rows in inserts)
    return staged


def _numbered(batches: Iterator["pa.RecordBatch"]) -> Iterator[memoryview]:
    start = 0
    for batch in batches:
        yield numbered_lines(batch, start)
        start += batch.num_rows


def _load(connection: Connection, columns: _Columns, write: str, staged: int) -> Loaded:
    if write == "replace":
        connection.execute(columns.statements.clear())
    if write not in BY_KEY:
        return Loaded(rows=_execute_strictly(connection, columns.statements.insert()), displaced=Totals())
    connection.execute(stage.DROP_CHOSEN)
    connection.execute(stage.CREATE_CHOSEN)
    connection.execute(columns.statements.choose(last=write == "upsert"))
    unchosen = _totals(connection, columns.statements.read_unchosen(columns.read), columns)
    there = _upsert(connection, columns) if write == "upsert" else _skip(connection, columns)
    inserted = _insert_chosen(connection, columns)
    if inserted + there.rows + unchosen.rows != staged:
        raise Conflict(f"{inserted} rows were inserted where {staged - there.rows - unchosen.rows} had a key that was not there")
    return Loaded(rows=staged, displaced=there + unchosen)


def _upsert(connection: Connection, columns: _Columns) -> Totals:
    """Replace the rows whose key the table has, and return the totals of the old ones."""
    statements = columns.statements
    replaced = _totals(connection, statements.lock_replaced(columns.read), columns)
    matched = _execute_strictly(connection, statements.replace())
    if matched != replaced.rows:
        raise Conflict(f"{matched} rows were replaced where {replaced.rows} had a key of the batch")
    connection.execute(statements.forget_there())
    return replaced


def _skip(connection: Connection, columns: _Columns) -> Totals:
    """Return the totals of the chosen rows whose key the table has, and remove these rows from the choice."""
    skipped = _totals(connection, columns.statements.read_skipped(columns.read), columns)
    connection.execute(columns.statements.forget_there())
    return skipped


def _insert_chosen(connection: Connection, columns: _Columns) -> int:
    try:
        return _execute_strictly(connection, columns.statements.insert_chosen())
    except pymysql.err.Error as cause:
        if code_of(cause) == DUPLICATE and index_of(cause) in columns.key_indexes:
            raise Conflict(reason_of(cause)) from cause
        raise


def _execute_strictly(connection: Connection, statement: "str | bytes") -> int:
    """Run a statement that writes rows, and return their number. Raise if MySQL warns: it changed a value or left a row out."""
    return _require_no_warnings(connection, connection.execute(statement))


def _load_data(connection: Connection, statement: str, chunks: Iterable[memoryview]) -> int:
    """Load chunks as `_execute_strictly` runs a statement.

    LOAD DATA LOCAL only warns where any other statement would fail, however strict the session is.
    """
    return _require_no_warnings(connection, connection.load(statement, chunks, max_packet=connection.server.max_packet))


def _require_no_warnings(connection: Connection, written: "Cursor | LoadAnswer") -> int:
    if written.warning_count:
        raise _warned(connection)
    return int(written.rowcount)


def _warned(connection: Connection) -> PublishFailed | pymysql.err.Error:
    warnings: list[tuple[Any, ...]] = list(connection.execute(sql.WARNINGS).fetchall())
    if warnings and warnings[0][1] in CONSTRAINTS | UNPARTITIONED:
        return pymysql.err.IntegrityError(*warnings[0][1:])  # the error of any other statement in this case
    reason = without_values(str(warnings[0][2])) if warnings else "without saying why"
    return PublishFailed(
        f"MySQL would change values of the batch, or leave rows out: {reason}.",
        remedy="Look for a trigger or a change of the table, and start again: what was decided is published then.",
    )


def _totals(connection: Connection, query: str, columns: _Columns) -> Totals:
    rows = STORAGES.batches(connection.stream(query), columns.schema)
    return totals_under_key(rows, columns.row_digest, table=columns.statements.table)
