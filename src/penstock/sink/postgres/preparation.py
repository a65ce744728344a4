"""Preparation of the user's table: it is created or checked, and its marker created, in one transaction."""

from functools import partial

import psycopg
import pyarrow as pa

from penstock.core.model import PipelineName, SinkName, Totals
from penstock.errors import Conflict, Failed, Retryable
from penstock.sink.postgres import statements as sql
from penstock.sink.postgres.load import create_stage, run
from penstock.sink.postgres.marker_store import PostgresMarkerStore
from penstock.sink.postgres.members import require_fitting_members, require_none_filled
from penstock.sink.postgres.row_validator import RowValidator
from penstock.sink.postgres.scan import scan
from penstock.sink.postgres.statements import OwnStatements
from penstock.sink.postgres.storage import longest_text, read_as
from penstock.sink.postgres.table_schema import (
    TableSchema,
    declared_for,
    require_allowed,
    require_fit,
    require_lasting,
    require_storable,
    statements_of,
    table_schema_of,
)
from penstock.sink.postgres.table_statements import ROLLBACK_TO_SAVEPOINT, SAVEPOINT
from penstock.sink.table.content import totals_of
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.preparation import prepare_marker, require_not_lost, require_unfilled, settings_of, unnamed_markers
from penstock.sink.table.target import Target, merge_fails, no_table
from penstock.spark.schema import arrow_schema
from penstock.sql.postgres.database import Connection, require_schema
from penstock.sql.postgres.errors import reason_of, translate_error
from penstock.sql.postgres.names import DEFAULT_SCHEMA, split_name
from penstock.sql.postgres.statements import TAKE_LOCK
from penstock.sql.table_name import in_double_quotes


def prepare_table(
    connection: Connection, *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, create: bool
) -> RowValidator:
    """Create or check the table for rows of Spark's `schema`, and its marker. Raises Usage, Refused."""
    rows, place = arrow_schema(schema), split_name(target.table)
    with settings_of(sink):
        require_storable(rows, target)
    connection.execute(TAKE_LOCK)
    _create_own_tables(connection, place[0])
    markers = PostgresMarkerStore(connection, place[0], locking=True)
    table_schema = table_schema_of(connection, *place)
    marker = markers.read(pipeline, sink)
    require_not_lost(marker, target, exists=table_schema is not None)
    if marker is None:
        _require_unfilled_by_dbapi(connection, target.table)
    table_schema = table_schema or _created(connection, rows, target, create=create)
    _require_table(connection, table_schema, rows, target)
    if marker is None:
        require_none_filled(connection, table_schema.oid, target.table)
    rehearse(connection, rows, target)
    content = partial(content_of, connection, rows, target)
    prepare_marker(markers, pipeline=pipeline, sink=sink, schema=schema, target=target, content=content)
    return _row_validator(sink, target, table_schema)


def require_schema_accepted(
    connection: Connection, *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, create: bool
) -> None:
    """Raise the errors of `prepare_table` about settings, tables and privileges, changing nothing."""
    rows, place = arrow_schema(schema), split_name(target.table)
    with settings_of(sink):
        require_storable(rows, target)
    require_schema(connection, place[0])
    table_schema = table_schema_of(connection, *place)
    markers = readable_marker_store(connection, place[0])
    if markers is not None:
        require_not_lost(markers.read(pipeline, sink), target, exists=table_schema is not None)
    for table in (sql.MARKER_TABLE, sql.BATCH_TABLE):
        _require_own(table_schema_of(connection, place[0], table), place[0], table)
    if table_schema is not None:
        _require_table(connection, table_schema, rows, target)
    elif not create:
        raise no_table(target.table)


def _require_table(connection: Connection, table_schema: TableSchema, rows: "pa.Schema", target: Target) -> None:
    require_fit(table_schema, rows, target)
    require_allowed(connection, table_schema, target)
    if table_schema.is_partitioned and target.merge is None:  # the user's own SQL is rehearsed instead
        left = frozenset(column.name for column in table_schema.columns if column.fills_itself) - frozenset(rows.names)
        needed = frozenset(column.name for column in table_schema.columns) - left
        require_fitting_members(connection, table_schema.oid, target.table, needed=needed, sent=frozenset(rows.names))


def is_unnamed(connection: Connection, schema: str) -> bool:
    """Return whether the markers' table was created by an older Penstock and lacks the column `ledger_id`."""
    return _is_unnamed(table_schema_of(connection, schema, sql.MARKER_TABLE))


def name_markers(connection: Connection, schema: str) -> None:
    """Add the column `ledger_id` to the markers' table, in the open transaction. Raises Refused."""
    connection.execute(TAKE_LOCK)
    statement = OwnStatements(schema).add_ledger_id
    try:
        connection.execute(statement, {})
    except psycopg.errors.InsufficientPrivilege as cause:
        raise unnamed_markers(statement.as_string(connection), reason_of(cause)) from cause


def readable_marker_store(connection: Connection, schema: str) -> PostgresMarkerStore | None:
    """Return the markers without locking them, also those of an older Penstock; None if their table does not exist."""
    table_schema = table_schema_of(connection, schema, sql.MARKER_TABLE)
    return (
        None
        if table_schema is None
        else PostgresMarkerStore(connection, schema, locking=False, named=not _is_unnamed(table_schema))
    )


def _is_unnamed(table_schema: TableSchema | None) -> bool:
    return table_schema is not None and all(column.name != LEDGER_ID for column in table_schema.columns)


def rehearse_anew(connection: Connection, *, schema: str, target: Target) -> None:
    """Rehearse in a transaction that is never committed, creating a missing table in it first."""
    rows, place = arrow_schema(schema), split_name(target.table)
    if table_schema_of(connection, *place) is None:
        _created(connection, rows, target, create=True)
    rehearse(connection, rows, target)


def rehearse(connection: Connection, rows: "pa.Schema", target: Target) -> None:
    """Run the user's own SQL over no rows in the open transaction, and undo it by a savepoint. Raises Refused.

    Without it, the server's first refusal would come after a decision, and would last for ever.
    """
    if target.merge is None:
        return
    statements = statements_of(rows, target)
    connection.execute(SAVEPOINT)
    create_stage(connection, statements, rows)
    try:
        run(connection, statements, target.merge)
    except psycopg.Error as cause:
        if isinstance(translate_error(cause, target.table, Failed), Retryable | Conflict):
            raise
        raise merge_fails(target.table, reason_of(cause)) from cause
    connection.execute(ROLLBACK_TO_SAVEPOINT)


def content_of(connection: Connection, rows: "pa.Schema", target: Target) -> Totals:
    """Return the count and the digest of all rows of the table. Raises NotStoredError."""
    query = statements_of(rows, target).read([read_as(field.type) for field in rows])
    return totals_of(scan(connection, query, rows), target.row_digest)


def _require_unfilled_by_dbapi(connection: Connection, table: str) -> None:
    for (schema,) in connection.execute(sql.DBAPI_SCHEMAS).fetchall():
        require_unfilled(connection.execute(sql.owners_of_dbapi(schema)).fetchall(), table, schema=split_name(table)[0])


def _create_own_tables(connection: Connection, schema: str) -> None:
    require_schema(connection, schema)
    own = OwnStatements(schema)
    creates = ((sql.MARKER_TABLE, (own.create_marker, own.create_offsets)), (sql.BATCH_TABLE, (own.create_batch,)))
    for table, statements in creates:
        table_schema = table_schema_of(connection, schema, table)
        _require_own(table_schema, schema, table)
        if table_schema is None:
            for statement in statements:
                connection.execute(statement, {})


def _require_own(table_schema: TableSchema | None, schema: str, table: str) -> None:
    """Raise Refused if Penstock's own table exists and could lose rows: without a marker, the newest batch is published again."""
    if table_schema is not None:
        require_lasting(table_schema, table if schema == DEFAULT_SCHEMA else in_double_quotes(schema, table))


def _created(connection: Connection, rows: "pa.Schema", target: Target, *, create: bool) -> TableSchema:
    if not create:
        raise no_table(target.table)
    connection.execute(statements_of(rows, target).create(declared_for(rows)))
    table_schema = table_schema_of(connection, *split_name(target.table))
    assert table_schema is not None
    return table_schema


def _row_validator(sink: SinkName, target: Target, table_schema: TableSchema) -> RowValidator:
    columns = table_schema.columns if target.merge is None else ()  # the staging table takes all rows of a merge
    lengths = ((column.name, longest_text(column.declared)) for column in columns)
    return RowValidator(
        sink=sink,
        table=target.table,
        required=frozenset() if target.merge is not None else table_schema.required | frozenset(target.key),
        longest={name: length for name, length in lengths if length is not None},
        jsonb=frozenset(column.name for column in columns if column.declared == "jsonb"),
    )
