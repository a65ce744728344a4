"""The load of a batch from the spool into a Redshift table, inside a transaction that the caller opened and will commit."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import RowDigest, Totals
from penstock.errors import Conflict
from penstock.sink.redshift.connection import Connection
from penstock.sink.redshift.errors import connection_lost
from penstock.sink.redshift.storage import STORAGES, bound_as, storage_of, values_of
from penstock.sink.redshift.table_schema import TableSchema, declared_for, lengths, statements_of
from penstock.sink.redshift.table_statements import DROP_STAGE, TableStatements
from penstock.sink.table.publication import Loaded, totals_under_key
from penstock.sink.table.target import BY_KEY, Target

STAGE = FaultPoint("redshift.stage", "The rows of a decided batch are inserted into a temporary staging table.")
MOVE = FaultPoint("redshift.move", "The staged rows are loaded into the table, in an open transaction.")

MOST_VALUES, MOST_ROWS, MOST_BYTES = 32_767, 512, 1_000_000
"""Limits of one statement: the protocol's own, a power of two, and far less than the 16 MB that Redshift takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The statements about the table, and how its columns are read."""

    statements: TableStatements
    schema: "pa.Schema"
    row_digest: RowDigest
    read: tuple[str, ...]


def load(
    connection: Connection, batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", table_schema: TableSchema, target: Target
) -> Loaded:
    """Write `batches` in their order. Of several rows with one key, `upsert` keeps the last and `insert_if_absent` the first.

    Raises Conflict where another session writes rows of the same keys meanwhile.
    """
    batches = lengths(table_schema, schema, target).required(batches)
    statements = statements_of(schema, target)
    columns = _Columns(
        statements=statements,
        schema=schema,
        row_digest=target.row_digest,
        read=tuple(storage_of(field.type).read for field in schema),
    )
    connection.execute(statements.create_stage(declared_for(schema)))
    with STAGE.around(error=connection_lost, lost=connection_lost):
        staged = _fill_stage(connection, columns, batches)
    with MOVE.around(error=connection_lost, lost=connection_lost):
        loaded = _load(connection, columns, target.write, staged)
    connection.execute(DROP_STAGE)
    return loaded


def content(connection: Connection, schema: "pa.Schema", target: Target) -> Iterator["pa.RecordBatch"]:
    """Yield every row of the table. Raise NotStoredError."""
    query = statements_of(schema, target).read([storage_of(field.type).read for field in schema])
    return STORAGES.batches(connection.stream(query), schema)


def _fill_stage(connection: Connection, columns: _Columns, batches: Iterator["pa.RecordBatch"]) -> int:
    """Fill the staging table and return the number of rows."""
    staged, bound = 0, [bound_as(field.type) for field in columns.schema]
    for batch in batches:
        for part in _parts(batch):
            rows = zip(range(staged, staged + part.num_rows), *(values_of(column) for column in part.columns), strict=True)
            statement = columns.statements.fill_stage(bound, part.num_rows)
            staged += connection.insert(statement, list(chain.from_iterable(rows)))
    return staged


def _parts(batch: "pa.RecordBatch") -> Iterator["pa.RecordBatch"]:
    """Split into slices of a power of two rows: the driver remembers each statement's text for ever, so they must be few."""
    start, most = 0, MOST_ROWS
    while most > 1 and most * (batch.num_columns + 1) > MOST_VALUES:
        most //= 2
    while start < batch.num_rows:
        rows = most
        while rows > 1 and (rows > batch.num_rows - start or batch.slice(start, rows).nbytes > MOST_BYTES):
            rows //= 2
        yield batch.slice(start, rows)
        start += rows


def _load(connection: Connection, columns: _Columns, write: str, staged: int) -> Loaded:
    statements = columns.statements
    if write == "replace":
        connection.execute(statements.clear())
    if write not in BY_KEY:
        return Loaded(rows=connection.execute(statements.insert()).rowcount, displaced=Totals())
    unchosen = _totals(connection, statements.read_unchosen(columns.read, last=write == "upsert"), columns)
    there, inserted = (_upsert if write == "upsert" else _insert_if_absent)(connection, columns)
    expected = staged - unchosen.rows - (0 if write == "upsert" else there.rows)
    if inserted != expected:
        raise Conflict(f"{inserted} rows were inserted where {expected} were to be")
    return Loaded(rows=staged, displaced=there + unchosen)


def _upsert(connection: Connection, columns: _Columns) -> tuple[Totals, int]:
    """Replace the rows whose key exists. Return the totals of the old ones, and how many rows were inserted."""
    there = _totals(connection, columns.statements.read_there(columns.read), columns)
    deleted = connection.execute(columns.statements.delete_there()).rowcount
    if deleted != there.rows:
        raise Conflict(f"{deleted} rows were deleted where {there.rows} had a key of the batch")
    return there, connection.execute(columns.statements.insert_chosen()).rowcount


def _insert_if_absent(connection: Connection, columns: _Columns) -> tuple[Totals, int]:
    """Insert the rows whose key is absent. Return the totals of those skipped, and how many rows were inserted."""
    skipped = _totals(connection, columns.statements.read_skipped(columns.read), columns)
    return skipped, connection.execute(columns.statements.insert_if_absent()).rowcount


def _totals(connection: Connection, query: str, columns: _Columns) -> Totals:
    rows = STORAGES.batches(connection.stream(query), columns.schema)
    return totals_under_key(rows, columns.row_digest, table=columns.statements.table)
