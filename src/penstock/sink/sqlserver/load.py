"""The load of a batch from the spool into a SQL Server table, inside a transaction that the caller opened and will commit."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import Totals
from penstock.errors import Conflict
from penstock.sink.sqlserver.database import Connection
from penstock.sink.sqlserver.errors import connection_lost
from penstock.sink.sqlserver.statements import COUNT_STAGE, DROP_STAGE, TableStatements
from penstock.sink.sqlserver.storage import values_of
from penstock.sink.sqlserver.table_schema import TABLES, TableSchema, staged_for
from penstock.sink.table.publication import Loaded
from penstock.sink.table.sequence import take_out_outdated
from penstock.sink.table.target import BY_KEY, Target

LOAD = FaultPoint("sqlserver.load", "The rows of a decided batch are bulk loaded into a temporary staging table.")
MOVE = FaultPoint("sqlserver.move", "The staged rows are loaded into the table, in an open transaction.")


def load(
    connection: Connection, batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", table_schema: TableSchema, target: Target
) -> Loaded:
    """Write decided rows into the table, as `SqlSink._write` specifies."""
    batches = TABLES.lengths(table_schema, schema, target).required(batches)
    statements, totals = TABLES.statements_of(schema, target), TABLES.totals(connection, schema, target)
    sent = TABLES.staged(schema, target)
    staged_as = staged_for(sent, target.key, table_schema)
    connection.execute(DROP_STAGE)
    connection.execute(statements.create_stage([kind + collation for kind, collation in staged_as]))
    with LOAD.around(error=connection_lost, lost=connection_lost):
        kinds = [kind for kind, _ in staged_as]
        connection.load([(statements.number, "bigint"), *zip(sent.names, kinds, strict=True)], _rows(batches))
        staged = int(connection.execute(COUNT_STAGE).fetchone()[0])
    with MOVE.around(error=connection_lost, lost=connection_lost):
        outdated = take_out_outdated(statements, totals, lambda statement: int(connection.execute(statement).rowcount))
        loaded = _load(connection, statements, totals, target.write, staged - outdated.rows)
    connection.execute(DROP_STAGE)
    return loaded.leaving_out(outdated)


def _rows(batches: Iterator["pa.RecordBatch"]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with numbers that keep the order of rows with one key."""
    staged = 0
    for batch in batches:
        yield from zip(range(staged, staged + batch.num_rows), *(values_of(column) for column in batch.columns), strict=True)
        staged += batch.num_rows


def _load(
    connection: Connection, statements: TableStatements, totals: Callable[[str], Totals], write: str, staged: int
) -> Loaded:
    if write == "replace":
        connection.execute(statements.clear())
    if write not in BY_KEY:
        return Loaded(rows=connection.execute(statements.insert()).rowcount, displaced=Totals())
    unchosen = totals(statements.read_unchosen(last=write == "upsert"))
    chosen = staged - unchosen.rows
    if write == "upsert":
        there = totals(statements.lock_there())
        if statements.deletes:
            connection.execute(statements.delete())
        expected, changed = chosen, connection.execute(statements.upsert()).rowcount
    else:
        there = totals(statements.lock_skipped())
        expected, changed = chosen - there.rows, connection.execute(statements.insert_if_absent()).rowcount
    if changed != expected:
        raise Conflict(f"{changed} rows were written where {expected} were to be")
    return Loaded(rows=staged, displaced=there + unchosen)
