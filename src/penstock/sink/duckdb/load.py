"""The load of a batch from the spool into a DuckDB table, inside a transaction that the caller opened and will commit."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import duckdb
import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import Totals
from penstock.errors import PenstockError
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.database import disk_error
from penstock.sink.duckdb.statements import TableStatements
from penstock.sink.duckdb.storage import stored, stored_schema
from penstock.sink.duckdb.table_schema import TABLES, TableSchema, can_prepare, refused
from penstock.sink.table.history import HISTORY, VALID_FROM
from penstock.sink.table.publication import Loaded
from penstock.sink.table.sequence import take_out_outdated
from penstock.sink.table.target import BY_KEY, Target

_TRIED = {"replace": "append", HISTORY: "upsert"}

STAGE = FaultPoint("duckdb.stage", "The rows of a decided batch are copied into a temporary staging table.")
MOVE = FaultPoint("duckdb.move", "The staged rows are loaded into the table, in an open transaction.")


def load(
    connection: "duckdb.DuckDBPyConnection", batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", target: Target
) -> Loaded:
    """Write rows into the table, as `write` does but without its checks of the table."""
    statements = TABLES.statements_of(schema, target)
    with STAGE.around(error=disk_error, lost=disk_error):
        _stage(connection, statements, batches, TABLES.staged(schema, target))
    with MOVE.around(error=disk_error, lost=disk_error):
        totals, delete = TABLES.totals(connection, schema, target), partial(_count, connection)
        outdated = take_out_outdated(statements, totals, delete)
        loaded = _load(connection, statements, totals, target.write)
        connection.execute(sql.DROP_STAGE)
    return loaded.leaving_out(outdated)


def _stage(
    connection: "duckdb.DuckDBPyConnection", statements: TableStatements, batches: Iterator["pa.RecordBatch"], schema: "pa.Schema"
) -> None:
    """Fill the staging table. Errors of reading the rows are raised as they are: through DuckDB only their text would remain."""
    failures: list[PenstockError] = []
    numbered = stored_schema(schema).insert(0, pa.field(statements.number, pa.int64()))
    reader = pa.RecordBatchReader.from_batches(numbered, _numbered(batches, numbered, failures))
    connection.register(sql.INCOMING, reader)
    try:
        connection.execute(statements.fill_stage)
    except duckdb.Error:
        if failures:
            raise failures[0] from None
        raise
    finally:
        connection.unregister(sql.INCOMING)


def _numbered(
    batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", failures: list[PenstockError]
) -> Iterator["pa.RecordBatch"]:
    """Yield the rows as DuckDB stores them, with numbers that keep the order of rows with one key."""
    start = 0
    try:
        for batch in batches:
            numbers = pa.array(range(start, start + batch.num_rows), pa.int64())
            yield pa.RecordBatch.from_arrays([numbers, *stored(batch).columns], schema=schema)
            start += batch.num_rows
    except PenstockError as failure:
        failures.append(failure)
        raise


def _load(
    connection: "duckdb.DuckDBPyConnection", statements: TableStatements, displaced: Callable[[str], Totals], write: str
) -> Loaded:
    if write == "replace":
        connection.execute(statements.clear())
    if write not in BY_KEY:
        return Loaded(rows=_count(connection, statements.insert()), displaced=Totals())
    if write == "insert_if_absent":
        skipped = displaced(statements.read_skipped)
        return Loaded(rows=_count(connection, statements.insert_if_absent) + skipped.rows, displaced=skipped)
    replaced = displaced(statements.read_replaced)
    superseded = displaced(statements.read_superseded)
    deleted = _count(connection, statements.delete) if statements.deletes else 0
    upserted = _count(connection, statements.upsert)
    left = 0 if statements.others else replaced.rows - deleted  # a row that is all key replaces itself, uncounted
    return Loaded(rows=upserted + left + superseded.rows, displaced=replaced + superseded)


def _count(connection: "duckdb.DuckDBPyConnection", statement: str) -> int:
    row = connection.execute(statement).fetchone()
    return 0 if row is None else int(row[0])


def read_there(
    connection: "duckdb.DuckDBPyConnection", keys: "pa.Table", rows: "pa.Schema", _: TableSchema, target: Target
) -> Iterator["pa.RecordBatch"]:
    """Yield the table's rows under `keys`, as `SqlSink._read_there` specifies."""
    staged = TABLES.statements_of(keys.schema, target)
    _stage(connection, staged, iter(keys.to_batches()), keys.schema)
    query = TABLES.statements_of(rows, target).read_compared(since=VALID_FROM in keys.schema.names)
    yield from TABLES.scan(connection, query, rows)
    connection.execute(sql.DROP_STAGE)


# --- checks of the table, which may have been altered since the rows were checked


def write(
    connection: "duckdb.DuckDBPyConnection",
    batches: Iterator["pa.RecordBatch"],
    rows: "pa.Schema",
    table_schema: TableSchema,
    target: Target,
) -> Loaded:
    """Write decided rows into the table, as `SqlSink._write` specifies: check what was altered since, then `load` them."""
    _require_written(connection, table_schema, rows, target)
    return load(connection, batches, rows, target)


def _require_written(
    connection: "duckdb.DuckDBPyConnection", table_schema: TableSchema, rows: "pa.Schema", target: Target
) -> None:
    statements = TABLES.statements_of(rows, target)
    filled = {column.name.lower() for column in table_schema.columns if column.fills_itself}
    for name in rows.names:
        generated = name.lower() in filled and not can_prepare(connection, statements.tries(name))
        TABLES.columns(target, decided=True).require_not_generated(name, generated=generated)


def dry_run(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> None:
    """Run a publication's statements without rows: an unsuitable key, say, is reported before anything is decided."""
    sequence_by = None if target.keeps_history else target.sequence_by
    tried = replace(target, write=_TRIED.get(target.write, target.write), sequence_by=sequence_by)
    with refused(target):
        load(connection, iter(()), rows, tried)
