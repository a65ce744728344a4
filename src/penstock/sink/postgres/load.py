"""Loading of rows from the spool into the table, inside a transaction that the caller opened and commits; reading them back."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import pgpq
import psycopg
import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import Totals
from penstock.errors import Conflict, Failed, Retryable
from penstock.sink.postgres.statements import (
    ANALYZE_STAGE,
    COUNT_STAGE,
    DROP_STAGE,
    ROLLBACK_TO_SAVEPOINT,
    SAVEPOINT,
    STAGE,
    TableStatements,
)
from penstock.sink.postgres.storage import cast_into, copies_as_is, encoded, storage_of
from penstock.sink.postgres.table_schema import TABLES, TableSchema, require_lasting, table_schema_of
from penstock.sink.table.history import VALID_FROM
from penstock.sink.table.publication import Loaded
from penstock.sink.table.script import Script
from penstock.sink.table.sequence import require_none_outdated, take_out_outdated
from penstock.sink.table.target import BY_KEY, Target, merge_fails
from penstock.sql.postgres.database import Connection
from penstock.sql.postgres.errors import connection_lost, reason_of, translate_error
from penstock.sql.postgres.names import split_name

COPY = FaultPoint("postgres.copy", "The rows of a decided batch are copied to the server, into a temporary table or the user's.")
MOVE = FaultPoint("postgres.move", "The rows get into the table, in an open transaction.")


def load(
    connection: Connection, batches: Iterator["pa.RecordBatch"], schema: "pa.Schema", table_schema: TableSchema, target: Target
) -> Loaded:
    """Write decided rows into the table, as `SqlSink._write` specifies."""
    statements, totals = TABLES.statements_of(schema, target), TABLES.totals(connection, schema, target)
    if target.merge is None:
        batches = TABLES.lengths(table_schema, schema, target).required(batches)
    directly, staged = _goes_directly(schema, table_schema, target), 0
    if not directly:
        create_stage(connection, statements, TABLES.staged(schema, target))
        staged = _copy(connection, statements.copy(), _numbered(batches, statements.number))
    with MOVE.around(error=connection_lost, lost=connection_lost):
        if directly:
            loaded = _copy_in(connection, statements, batches, write=target.write)
        elif target.merge is not None:
            loaded = _merge(connection, statements, target.merge)
        else:
            declared = table_schema.declared(schema.names)
            casts = [cast_into(kind, field.type) for kind, field in zip(declared, schema, strict=True)]
            loaded = _write(connection, statements, casts, totals, write=target.write, staged=staged)
    if table_schema.is_partitioned:
        _require_lasting_partitions(connection, target.table)
    return loaded


def rehearse(connection: Connection, schema: "pa.Schema", target: Target) -> None:
    """Run the user's own SQL over no rows in the open transaction, and undo it by a savepoint. Raises Refused.

    Without it, the server's first refusal would come after a decision, and would last for ever.
    """
    if target.merge is None:
        return
    statements = TABLES.statements_of(schema, target)
    connection.execute(SAVEPOINT)
    create_stage(connection, statements, schema)
    try:
        run(connection, statements, target.merge)
    except psycopg.Error as cause:
        if isinstance(translate_error(cause, target.table, Failed), Retryable | Conflict):
            raise
        raise merge_fails(target.table, reason_of(cause)) from cause
    connection.execute(ROLLBACK_TO_SAVEPOINT)


def _require_lasting_partitions(connection: Connection, table: str) -> None:
    """Check the partitions again: they hold the rows now and cannot be altered. ATTACH PARTITION waits for no writer."""
    table_schema = table_schema_of(connection, *split_name(table))
    assert table_schema is not None, "it is locked"
    require_lasting(table_schema, table)


def _goes_directly(schema: "pa.Schema", table_schema: TableSchema, target: Target) -> bool:
    """Return whether rows can be copied straight into the table, and so are written once instead of twice.

    They can if no key is looked up, no value is cast, no rule exists, and no SQL of the user's own runs.
    """
    if target.merge is not None or target.write in BY_KEY or table_schema.rules:
        return False
    declared = table_schema.declared(schema.names)
    return all(copies_as_is(kind, field.type) for kind, field in zip(declared, schema, strict=True))


def _copy_in(connection: Connection, statements: TableStatements, batches: Iterator["pa.RecordBatch"], *, write: str) -> Loaded:
    if write == "replace":
        connection.execute(statements.clear())
    return Loaded(rows=_copy(connection, statements.copy_in(), map(_encoded, batches)), displaced=Totals())


def read_there(
    connection: Connection, keys: "pa.Table", rows: "pa.Schema", _: TableSchema, target: Target
) -> Iterator["pa.RecordBatch"]:
    """Yield the table's rows under `keys`, as `SqlSink._read_there` specifies."""
    staged = TABLES.statements_of(keys.schema, target)
    create_stage(connection, staged, keys.schema)
    _copy(connection, staged.copy(), _numbered(iter(keys.to_batches()), staged.number))
    connection.execute(ANALYZE_STAGE)
    yield from TABLES.scan(
        connection, TABLES.statements_of(rows, target).read_compared(since=VALID_FROM in keys.schema.names), rows
    )


def create_stage(connection: Connection, statements: TableStatements, schema: "pa.Schema") -> None:
    """Create an empty staging table for rows of `schema`."""
    connection.execute(DROP_STAGE)
    connection.execute(statements.create_stage([storage_of(field.type).staged for field in schema]))


def run(connection: Connection, statements: TableStatements, script: Script) -> None:
    """Run the user's own SQL over the staging table."""
    for statement in script.naming(staged=STAGE, table=statements.name):
        connection.execute(statement.encode(), binary=True)  # binary, so the server refuses a second statement in it


def _merge(connection: Connection, statements: TableStatements, script: Script) -> Loaded:
    """Run the user's SQL and count the staged rows: only the user knows how many rows it writes."""
    connection.execute(ANALYZE_STAGE)
    row = connection.execute(COUNT_STAGE).fetchone()
    assert row is not None
    run(connection, statements, script)
    return Loaded(rows=row[0], displaced=Totals())


def _write(
    connection: Connection,
    statements: TableStatements,
    casts: Sequence[str],
    totals: Callable[[str], Totals],
    *,
    write: str,
    staged: int,
) -> Loaded:
    """Move the staged rows into the table."""
    if write == "replace":
        connection.execute(statements.clear())
    if write not in BY_KEY:
        return Loaded(rows=connection.execute(statements.insert_cast(casts)).rowcount, displaced=Totals())
    connection.execute(ANALYZE_STAGE)
    if write == "upsert":
        outdated = take_out_outdated(statements, totals, lambda statement: connection.execute(statement).rowcount)
        replaced = totals(statements.lock_replaced(casts))
        require_none_outdated(statements, totals)
        superseded = totals(statements.read_superseded(casts))
        deleted = connection.execute(statements.delete(casts)).rowcount if statements.deletes else 0
        row = connection.execute(statements.upsert(casts)).fetchone()
        assert row is not None
        if row[1] + deleted != replaced.rows:
            raise Conflict(f"{row[1] + deleted} rows were replaced or deleted where {replaced.rows} had a key of the batch")
        return Loaded(rows=row[0] + superseded.rows, displaced=replaced + superseded).leaving_out(outdated)
    skipped = totals(statements.read_skipped(casts))
    inserted = connection.execute(statements.insert_if_absent(casts)).rowcount
    if inserted + skipped.rows != staged:
        raise Conflict(f"{inserted} rows were inserted where {staged - skipped.rows} had a key that was not there")
    return Loaded(rows=inserted + skipped.rows, displaced=skipped)


def _copy(connection: Connection, statement: str, batches: Iterator["pa.RecordBatch"]) -> int:
    """Send encoded rows and return how many the server took; a trigger may have dropped some."""
    first = next(batches, None)
    if first is None:
        return 0
    encoder = pgpq.ArrowToPostgresBinaryEncoder(first.schema)
    with COPY.around(error=connection_lost, lost=connection_lost), connection.cursor() as cursor:
        with cursor.copy(statement) as copy:
            copy.write(encoder.write_header())
            for batch in chain([first], batches):
                copy.write(encoder.write_batch(batch))
            copy.write(encoder.finish())
        return cursor.rowcount


def _encoded(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    return pa.RecordBatch.from_arrays([encoded(column) for column in batch.columns], names=batch.schema.names)


def _numbered(batches: Iterator["pa.RecordBatch"], number: str) -> Iterator["pa.RecordBatch"]:
    """Encode the batches and number their rows from 0, which preserves the order of rows with the same key."""
    start = 0
    for batch in map(_encoded, batches):
        numbers = pa.array(range(start, start + batch.num_rows), pa.int64())
        yield pa.RecordBatch.from_arrays([numbers, *batch.columns], names=[number, *batch.schema.names])
        start += batch.num_rows
