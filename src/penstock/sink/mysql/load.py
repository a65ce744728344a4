"""Loading of rows from the spool into the table, inside a transaction that the caller opened and commits; its rehearsal."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.cursors import Cursor

from penstock.core.faults import FaultPoint
from penstock.core.model import Totals
from penstock.errors import Conflict, Failed, PublishFailed, Refused, Retryable
from penstock.sink.mysql import statements as sql
from penstock.sink.mysql.statements import TableStatements
from penstock.sink.mysql.storage import STORAGES
from penstock.sink.mysql.table_schema import TABLES, TableSchema, decided_rows
from penstock.sink.mysql.wire import LOAD_OPTIONS, lines, numbered_lines, rows_of_insert
from penstock.sink.table.batch_keys import BatchKeys
from penstock.sink.table.history import VALID_FROM
from penstock.sink.table.publication import Loaded
from penstock.sink.table.script import Script
from penstock.sink.table.sequence import require_none_outdated, take_out_outdated
from penstock.sink.table.target import BY_KEY, Target, merge_fails
from penstock.sql.mysql.catalog import has_triggers
from penstock.sql.mysql.connection import Connection, LoadAnswer
from penstock.sql.mysql.errors import (
    CONSTRAINTS,
    DENIED,
    DUPLICATE,
    UNPARTITIONED,
    code_of,
    connection_lost,
    index_of,
    reason_of,
    translate_error,
    without_values,
)
from penstock.sql.mysql.statements import BEGIN, COMMIT, ROLLBACK

LOAD = FaultPoint("mysql.load", "The rows of a decided batch are sent to the server, into a temporary table or the user's.")
MOVE = FaultPoint("mysql.move", "The rows get into the table, in an open transaction.")

_INSERT_BYTES = 100_000
"""Bytes of one INSERT of many rows. Measured: the server takes more time per row for longer ones."""


def load(
    connection: Connection, batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", table_schema: TableSchema, target: Target
) -> Loaded:
    """Write rows into the table, as `write` does but without its checks of values."""
    statements, totals = TABLES.statements_of(schema, target), TABLES.totals(connection, schema, target)
    directly, staged = connection.server.loads and _goes_directly(table_schema, target), 0
    keys = BatchKeys(target.key)
    if not directly:
        create_stage(connection, statements, TABLES.staged(schema, target))
        staged = _sent(lambda: fill_stage(connection, statements, keys.seen(batches) if target.write == "upsert" else batches))
    with MOVE.around(error=connection_lost, lost=connection_lost):
        if directly:
            return _load_in(connection, statements, batches, target.write)
        if target.merge is not None:
            run(connection, statements, target.merge)
            return Loaded(rows=staged, displaced=Totals())  # only the user knows what the SQL writes
        if target.write not in BY_KEY:
            return _insert_all(connection, statements, target.write)
        key_indexes = table_schema.tells_apart_by(target.key)
        if _may_insert_over(connection, table_schema, schema, target) and keys.are_distinct():
            return _insert_over(connection, statements, totals, staged=staged, key_indexes=key_indexes)
        return _load_by_key(connection, statements, totals, write=target.write, staged=staged, key_indexes=key_indexes)


def write(
    connection: Connection, batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", table_schema: TableSchema, target: Target
) -> Loaded:
    """Write decided rows into the table, as `SqlSink._write` specifies: check values against the table, then `load` them."""
    decided = decided_rows(batches, table_schema, schema, target, connection.server)
    return load(connection, decided, schema, table_schema, target)


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


def read_there(
    connection: Connection, keys: "pa.Table", rows: "pa.Schema", _: TableSchema, target: Target
) -> Iterator["pa.RecordBatch"]:
    """Yield the table's rows under `keys`, as `SqlSink._read_there` specifies."""
    staged = TABLES.statements_of(keys.schema, target)
    create_stage(connection, staged, keys.schema)
    _sent(lambda: fill_stage(connection, staged, iter(keys.to_batches())))
    yield from TABLES.scan(
        connection, TABLES.statements_of(rows, target).read_compared(since=VALID_FROM in keys.schema.names), rows
    )


def create_stage(connection: Connection, statements: TableStatements, schema: "pa.Schema") -> None:
    """Create an empty staging table for rows of `schema`."""
    connection.execute(sql.DROP_STAGE)
    connection.execute(statements.create_stage(STORAGES.declared(schema), connection.server.exact_collation))


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


def _insert_all(connection: Connection, statements: TableStatements, write: str) -> Loaded:
    if write == "replace":
        connection.execute(statements.clear())
    return Loaded(rows=_execute_strictly(connection, statements.insert()), displaced=Totals())


def _load_by_key(
    connection: Connection,
    statements: TableStatements,
    totals: Callable[[str], Totals],
    *,
    write: str,
    staged: int,
    key_indexes: frozenset[str],
) -> Loaded:
    """Load the last or first staged row of each key. `key_indexes`: the unique indexes on exactly the key."""
    connection.execute(sql.DROP_CHOSEN)
    connection.execute(sql.CREATE_CHOSEN)
    connection.execute(statements.choose(last=write == "upsert"))
    unchosen = totals(statements.read_unchosen())
    deleted = 0
    if write == "upsert":
        unchosen += take_out_outdated(statements, totals, partial(_execute_strictly, connection))
        there = totals(statements.lock_replaced())
        require_none_outdated(statements, totals)
        if statements.deletes:
            deleted = _execute_strictly(connection, statements.delete())
            unchosen += totals(statements.read_deleting())
            connection.execute(statements.forget_deleting())
        matched = _execute_strictly(connection, statements.replace())
        if matched + deleted != there.rows:
            raise Conflict(f"{matched + deleted} rows were replaced or deleted where {there.rows} had a key of the batch")
    else:
        there = totals(statements.read_skipped())
    connection.execute(statements.forget_there())
    _insert(connection, statements.insert_chosen(), key_indexes, absent=staged - unchosen.rows - (there.rows - deleted))
    return Loaded(rows=staged, displaced=there + unchosen)


def _may_insert_over(connection: Connection, table_schema: TableSchema, rows: "pa.Schema", target: Target) -> bool:
    """Return whether INSERT … ON DUPLICATE KEY UPDATE does to the table what UPDATE does, in less than half of the time.

    It tries to insert each row before it updates one: by any unique index, with defaults in other columns, and with triggers.
    """
    return (
        target.write == "upsert"
        and not target.deletes
        and target.sequence_by is None
        and table_schema.is_only_told_apart_by(target.key)
        and table_schema.is_filled_by(rows)
        and not has_triggers(connection, target.table)
    )


def _insert_over(
    connection: Connection,
    statements: TableStatements,
    totals: Callable[[str], Totals],
    *,
    staged: int,
    key_indexes: frozenset[str],
) -> Loaded:
    """Load staged rows of which no two have the same key, as `_load_by_key` does."""
    there = totals(statements.lock_there())
    _insert(connection, statements.insert_absent(), key_indexes, absent=staged - there.rows)
    if there.rows:  # which nobody else can delete any more, so that none of them is inserted
        _execute_strictly(connection, statements.insert_over())
    return Loaded(rows=staged, displaced=there)


def _insert(connection: Connection, statement: str, key_indexes: frozenset[str], *, absent: int) -> None:
    """Insert rows whose keys are not there. Raise Conflict unless they are `absent`: others have changed the table."""
    try:
        inserted = _execute_strictly(connection, statement)
    except pymysql.err.Error as cause:
        if code_of(cause) == DUPLICATE and index_of(cause) in key_indexes:
            raise Conflict(reason_of(cause)) from cause
        raise
    if inserted != absent:
        raise Conflict(f"{inserted} rows were inserted where {absent} had a key that was not there")


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


# --- before the start


def rehearse(connection: Connection, rows: "pa.Schema", target: Target) -> None:
    """Stage one row in a transaction as publishing does, and leave nothing behind. Raises Refused.

    Without this and `rehearse_merge`, the server's first refusal would come after a decision, and would last for ever.
    A server may be too old for the collation, keep temporary tables out of transactions (GTIDs), find the rows too wide for its
    pages, or stand behind a proxy that blocks LOAD DATA.
    """
    try:
        connection.execute(BEGIN)
        _stage_one_row(connection, TABLES.staged(rows, target), TABLES.statements_of(rows, target), by_key=target.write in BY_KEY)
        connection.execute(COMMIT)
        connection.execute(sql.DROP_CHOSEN)
        connection.execute(sql.DROP_STAGE)
    except PublishFailed as cause:
        raise _refused(target, cause.message.rstrip("."), "Mend the cause and start again.") from cause
    except pymysql.err.Error as cause:
        if isinstance(translate_error(cause, target.table, Failed), Retryable | Conflict):
            raise
        right = "CREATE TEMPORARY TABLES on the database"
        remedy = f"GRANT {right} to the user." if code_of(cause) in DENIED else "Mend the cause and start again."
        lacking = f"the user lacks {right}: " if code_of(cause) in DENIED else ""
        raise _refused(target, lacking + reason_of(cause), remedy) from cause


def rehearse_merge(connection: Connection, rows: "pa.Schema", target: Target) -> None:
    """Run the user's own SQL over no rows in a transaction that is rolled back. Raises Refused."""
    if target.merge is None:
        return
    statements = TABLES.statements_of(rows, target)
    connection.execute(BEGIN)
    create_stage(connection, statements, rows)
    try:
        run(connection, statements, target.merge)
    except pymysql.err.Error as cause:
        if isinstance(translate_error(cause, target.table, Failed), Retryable | Conflict):
            raise
        raise merge_fails(target.table, reason_of(cause)) from cause
    connection.execute(ROLLBACK)
    connection.execute(sql.DROP_STAGE)


def _stage_one_row(connection: Connection, rows: "pa.Schema", statements: TableStatements, *, by_key: bool) -> None:
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in rows], schema=rows)
    create_stage(connection, statements, rows)
    fill_stage(connection, statements, iter([nothing]))
    connection.execute(sql.DROP_CHOSEN)
    connection.execute(sql.CREATE_CHOSEN)
    if by_key:
        connection.execute(statements.choose(last=True))


def _refused(target: Target, why: str, remedy: str) -> Refused:
    return Refused(f"Rows cannot be staged for table {target.table!r}: {why}.", remedy=remedy)
