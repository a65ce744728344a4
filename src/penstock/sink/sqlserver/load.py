"""The load of a batch from the spool into a SQL Server table, inside a transaction that the caller opened and will commit."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import RowDigest, Totals
from penstock.errors import Conflict
from penstock.sink.sqlserver.connection import Connection
from penstock.sink.sqlserver.errors import connection_lost
from penstock.sink.sqlserver.storage import STORAGES, values_of
from penstock.sink.sqlserver.table_schema import TableSchema, lengths, staged_for, statements_of
from penstock.sink.sqlserver.table_statements import COUNT_STAGE, DROP_STAGE, TableStatements
from penstock.sink.table.publication import Loaded, totals_under_key
from penstock.sink.table.target import BY_KEY, Target

LOAD = FaultPoint("sqlserver.load", "The rows of a decided batch are bulk loaded into a temporary staging table.")
MOVE = FaultPoint("sqlserver.move", "The staged rows are loaded into the table, in an open transaction.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The statements about the table, and its columns in Arrow."""

    statements: TableStatements
    schema: "pa.Schema"
    row_digest: RowDigest


def load(
    connection: Connection, batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", table_schema: TableSchema, target: Target
) -> Loaded:
    """Write `batches` in their order. Of several rows with one key, `upsert` keeps the last and `insert_if_absent` the first.

    Raises Conflict where another session writes rows of the same keys meanwhile.
    """
    batches = lengths(table_schema, schema, target).required(batches)
    columns = _Columns(statements=statements_of(schema, target), schema=schema, row_digest=target.row_digest)
    staged_as = staged_for(schema, target.key, table_schema)
    connection.execute(DROP_STAGE)
    connection.execute(columns.statements.create_stage([kind + collation for kind, collation in staged_as]))
    with LOAD.around(error=connection_lost, lost=connection_lost):
        kinds = [kind for kind, _ in staged_as]
        connection.load([(columns.statements.number, "bigint"), *zip(schema.names, kinds, strict=True)], _rows(batches))
        staged = int(connection.execute(COUNT_STAGE).fetchone()[0])
    with MOVE.around(error=connection_lost, lost=connection_lost):
        loaded = _load(connection, columns, target.write, staged)
    connection.execute(DROP_STAGE)
    return loaded


def content(connection: Connection, schema: "pa.Schema", target: Target) -> Iterator["pa.RecordBatch"]:
    """Yield every row of the table. Raise NotStoredError."""
    return STORAGES.batches(connection.stream(statements_of(schema, target).read()), schema)


def _rows(batches: Iterator["pa.RecordBatch"]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with numbers that keep the order of rows with one key."""
    staged = 0
    for batch in batches:
        yield from zip(range(staged, staged + batch.num_rows), *(values_of(column) for column in batch.columns), strict=True)
        staged += batch.num_rows


def _load(connection: Connection, columns: _Columns, write: str, staged: int) -> Loaded:
    statements = columns.statements
    if write == "replace":
        connection.execute(statements.clear())
    if write not in BY_KEY:
        return Loaded(rows=connection.execute(statements.insert()).rowcount, displaced=Totals())
    unchosen = _totals(connection, statements.read_unchosen(last=write == "upsert"), columns)
    chosen = staged - unchosen.rows
    if write == "upsert":
        there = _totals(connection, statements.lock_there(), columns)
        expected, changed = chosen, connection.execute(statements.upsert()).rowcount
    else:
        there = _totals(connection, statements.lock_skipped(), columns)
        expected, changed = chosen - there.rows, connection.execute(statements.insert_if_absent()).rowcount
    if changed != expected:
        raise Conflict(f"{changed} rows were written where {expected} were to be")
    return Loaded(rows=staged, displaced=there + unchosen)


def _totals(connection: Connection, query: str, columns: _Columns) -> Totals:
    rows = STORAGES.batches(connection.stream(query), columns.schema)
    return totals_under_key(rows, columns.row_digest, table=columns.statements.table)
