"""The load of a batch from the spool into a DuckDB table, inside a transaction that the caller opened and will commit."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa

from penstock.core.deletes import schema_with_deletes
from penstock.core.faults import FaultPoint
from penstock.core.model import Totals
from penstock.errors import PenstockError
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.database import disk_error
from penstock.sink.duckdb.statements import TableStatements, statements_of
from penstock.sink.duckdb.storage import restored, stored, stored_schema
from penstock.sink.table.publication import Loaded, totals_under_key
from penstock.sink.table.target import BY_KEY, NotStoredError, Target

STAGE = FaultPoint("duckdb.stage", "The rows of a decided batch are copied into a temporary staging table.")
MOVE = FaultPoint("duckdb.move", "The staged rows are loaded into the table, in an open transaction.")

_FETCHED_ROWS = 20_000


def load(
    connection: "duckdb.DuckDBPyConnection", batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", target: Target
) -> Loaded:
    """Write `batches` as `SqlDialect.write` describes."""
    statements = statements_of(schema, target)
    with STAGE.around(error=disk_error, lost=disk_error):
        _stage(connection, statements, batches, schema_with_deletes(schema) if target.deletes else schema)
    with MOVE.around(error=disk_error, lost=disk_error):
        loaded = _load(connection, statements, schema, target)
        connection.execute(sql.DROP_STAGE)
    return loaded


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


def _load(connection: "duckdb.DuckDBPyConnection", statements: TableStatements, schema: "pa.Schema", target: Target) -> Loaded:
    write = target.write

    def displaced(query: str) -> Totals:
        return totals_under_key(_scan(connection, query, schema), target.row_digest, table=statements.table)

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


def content(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> Iterator["pa.RecordBatch"]:
    """Yield every row of the table. Raise NotStoredError, naming the column."""
    return _scan(connection, statements_of(rows, target).read(), rows)


def _scan(connection: "duckdb.DuckDBPyConnection", query: str, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    for batch in connection.execute(query).to_arrow_reader(_FETCHED_ROWS):
        columns = [_restored(field, column) for field, column in zip(schema, batch.columns, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=schema.names)


def _restored(field: "pa.Field", column: "pa.Array") -> "pa.Array":
    try:
        return restored(column, field.type)
    except (NotStoredError, pa.ArrowException) as cause:
        raise NotStoredError(f"column {field.name!r}: {cause}") from cause
