"""The load of a batch from the spool into a Redshift table, inside a transaction that the caller opened and will commit."""

from collections.abc import Callable, Iterator
from itertools import chain

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import Totals
from penstock.errors import Conflict
from penstock.sink.redshift.database import Connection
from penstock.sink.redshift.errors import connection_lost
from penstock.sink.redshift.statements import DROP_STAGE, TableStatements
from penstock.sink.redshift.storage import STORAGES, bound_as, values_of
from penstock.sink.redshift.table_schema import TABLES, TableSchema
from penstock.sink.table.publication import Loaded
from penstock.sink.table.sequence import take_out_outdated
from penstock.sink.table.target import BY_KEY, Target

STAGE = FaultPoint("redshift.stage", "The rows of a decided batch are inserted into a temporary staging table.")
MOVE = FaultPoint("redshift.move", "The staged rows are loaded into the table, in an open transaction.")

MOST_VALUES, MOST_ROWS, MAX_STATEMENT_BYTES = 32_767, 512, 1_000_000
"""Limits of one statement: the protocol's own, a power of two, and far less than the 16 MB that Redshift takes."""


def load(
    connection: Connection, batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", table_schema: TableSchema, target: Target
) -> Loaded:
    """Write decided rows into the table, as `SqlSink._write` specifies."""
    batches = TABLES.lengths(table_schema, schema, target).required(batches)
    statements, totals = TABLES.statements_of(schema, target), TABLES.totals(connection, schema, target)
    sent = TABLES.staged(schema, target)
    connection.execute(statements.create_stage(STORAGES.declared(sent)))
    with STAGE.around(error=connection_lost, lost=connection_lost):
        staged = _fill_stage(connection, statements, sent, batches)
    with MOVE.around(error=connection_lost, lost=connection_lost):
        outdated = take_out_outdated(statements, totals, lambda statement: int(connection.execute(statement).rowcount))
        loaded = _load(connection, statements, totals, target.write, staged - outdated.rows)
    connection.execute(DROP_STAGE)
    return loaded.leaving_out(outdated)


def _fill_stage(
    connection: Connection, statements: TableStatements, schema: "pa.Schema", batches: Iterator["pa.RecordBatch"]
) -> int:
    """Fill the staging table and return the number of rows."""
    staged, bound = 0, [bound_as(field.type) for field in schema]
    for batch in batches:
        for part in _parts(batch):
            rows = zip(range(staged, staged + part.num_rows), *(values_of(column) for column in part.columns), strict=True)
            statement = statements.fill_stage(bound, part.num_rows)
            staged += connection.insert(statement, list(chain.from_iterable(rows)))
    return staged


def _parts(batch: "pa.RecordBatch") -> Iterator["pa.RecordBatch"]:
    """Split into slices of a power of two rows: the driver remembers each statement's text for ever, so they must be few."""
    start, most = 0, MOST_ROWS
    while most > 1 and most * (batch.num_columns + 1) > MOST_VALUES:
        most //= 2
    while start < batch.num_rows:
        rows = most
        while rows > 1 and (rows > batch.num_rows - start or batch.slice(start, rows).nbytes > MAX_STATEMENT_BYTES):
            rows //= 2
        yield batch.slice(start, rows)
        start += rows


def _load(
    connection: Connection, statements: TableStatements, totals: Callable[[str], Totals], write: str, staged: int
) -> Loaded:
    if write == "replace":
        connection.execute(statements.clear())
    if write not in BY_KEY:
        return Loaded(rows=connection.execute(statements.insert()).rowcount, displaced=Totals())
    unchosen = totals(statements.read_unchosen(last=write == "upsert"))
    expected = staged - unchosen.rows
    if write == "upsert":
        there = totals(statements.read_there())
        deleted = connection.execute(statements.delete_there()).rowcount
        if deleted != there.rows:
            raise Conflict(f"{deleted} rows were deleted where {there.rows} had a key of the batch")
        inserted = connection.execute(statements.insert_chosen()).rowcount
    else:
        there = totals(statements.read_skipped())
        expected -= there.rows
        inserted = connection.execute(statements.insert_if_absent()).rowcount
    if inserted != expected:
        raise Conflict(f"{inserted} rows were inserted where {expected} were to be")
    return Loaded(rows=staged, displaced=there + unchosen)
