"""Preparation of a Redshift table: it is created or checked, and its marker created, in one transaction."""

from functools import partial

import pyarrow as pa
from redshift_connector.error import Error

from penstock.core.model import PipelineName, SinkName, Totals
from penstock.errors import Refused
from penstock.sink.redshift import statements as sql
from penstock.sink.redshift.connection import Connection
from penstock.sink.redshift.database import Database
from penstock.sink.redshift.errors import FORBIDDEN, code_of, reason_of
from penstock.sink.redshift.load import content
from penstock.sink.redshift.marker_store import RedshiftMarkerStore
from penstock.sink.redshift.names import folded, split_name
from penstock.sink.redshift.row_validator import MAX_ROW_BYTES, RowValidator
from penstock.sink.redshift.statements import OwnStatements
from penstock.sink.redshift.storage import most_bytes
from penstock.sink.redshift.table_schema import (
    TableSchema,
    declared_for,
    require_allowed,
    require_fit,
    require_storable,
    statements_of,
    table_schema_of,
)
from penstock.sink.table.content import totals_of
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.preparation import prepare_marker, require_not_lost, settings_of, unnamed_markers
from penstock.sink.table.target import Target, no_table
from penstock.spark.schema import arrow_schema

_MADE_MEANWHILE = frozenset({"23505", "42P07"})
_ADDED_MEANWHILE = "42701"


def prepare_table(
    connection: Connection,
    *,
    database: Database,
    pipeline: PipelineName,
    sink: SinkName,
    schema: str,
    target: Target,
    create: bool,
) -> RowValidator:
    """Prepare the table for rows of Spark's `schema`, and its marker; return the check for the tasks. Raise Usage, Refused."""
    rows, place = arrow_schema(schema), split_name(target.table)
    _require_storable(sink, rows, schema, target)
    _create_own_tables(connection, place[0])
    markers = RedshiftMarkerStore(connection, place[0], locking=True)
    database.begin(connection)
    markers.lock()
    table_schema = table_schema_of(connection, *place)
    require_not_lost(markers.read(pipeline, sink), target, exists=table_schema is not None)
    table_schema = table_schema or _created(connection, rows, target, create=create)
    require_fit(table_schema, rows, target)
    require_allowed(connection, rows, target)
    counted = partial(content_of, connection, rows, target)
    prepare_marker(markers, pipeline=pipeline, sink=sink, schema=schema, target=target, content=counted)
    connection.execute(sql.COMMIT)
    return _row_validator(sink, target, table_schema)


def require_schema_accepted(
    connection: Connection, *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, create: bool
) -> None:
    """Raise what `prepare_table` would raise, without changing anything."""
    rows, place = arrow_schema(schema), split_name(target.table)
    _require_storable(sink, rows, schema, target)
    _require_schema(connection, place[0])
    table_schema = table_schema_of(connection, *place)
    markers = readable_marker_store(connection, place[0])
    if markers is not None:
        require_not_lost(markers.read(pipeline, sink), target, exists=table_schema is not None)
    if table_schema is not None:
        require_fit(table_schema, rows, target)
        require_allowed(connection, rows, target)
    elif not create:
        raise no_table(target.table)


def name_markers(connection: Connection, schema: str) -> None:
    """Add the column `ledger_id` to the marker table if an older Penstock created it. Raise Refused."""
    if not _is_unnamed(table_schema_of(connection, schema, sql.MARKER_TABLE)):
        return
    statement = OwnStatements(schema).add_ledger_id
    try:
        connection.execute(statement)
    except Error as cause:
        if code_of(cause) == FORBIDDEN:
            raise unnamed_markers(statement, reason_of(cause)) from cause
        if code_of(cause) != _ADDED_MEANWHILE:
            raise


def readable_marker_store(connection: Connection, schema: str) -> RedshiftMarkerStore | None:
    """Return the markers without locking them, also those of an older Penstock; None if there are none yet."""
    table_schema = table_schema_of(connection, schema, sql.MARKER_TABLE)
    return (
        None
        if table_schema is None
        else RedshiftMarkerStore(connection, schema, locking=False, named=not _is_unnamed(table_schema))
    )


def _is_unnamed(table_schema: TableSchema | None) -> bool:
    return table_schema is not None and all(column.name != LEDGER_ID for column in table_schema.columns)


def content_of(connection: Connection, rows: "pa.Schema", target: Target) -> Totals:
    """Return the totals of all rows of the table. Raise NotStoredError."""
    return totals_of(content(connection, rows, target), target.row_digest)


def _require_storable(sink: SinkName, rows: "pa.Schema", schema: str, target: Target) -> None:
    with settings_of(sink):
        require_storable(rows, target)
    if len(schema.encode()) > sql.MOST_BYTES:
        raise Refused(
            f"The rows of sink {sink!r} have a schema of {len(schema.encode())} bytes, and a marker in Redshift takes "
            f"{sql.MOST_BYTES}.",
            remedy="Select fewer columns in the transform.",
        )


def _require_schema(connection: Connection, schema: str) -> None:
    if connection.execute(sql.SCHEMA_EXISTS, {"schema": schema}).fetchone() is None:
        raise Refused(f"There is no schema {schema!r} in the database.", remedy=f'CREATE SCHEMA "{schema}".')


def _create_own_tables(connection: Connection, schema: str) -> None:
    """Create each table in a transaction of its own: the fence must exist before a transaction can begin with it."""
    _require_schema(connection, schema)
    for table, statement in OwnStatements(schema).creates.items():
        if table_schema_of(connection, schema, table) is None:
            try:
                connection.execute(statement)
            except Error as cause:
                if code_of(cause) not in _MADE_MEANWHILE:
                    raise


def _created(connection: Connection, rows: "pa.Schema", target: Target, *, create: bool) -> TableSchema:
    if not create:
        raise no_table(target.table)
    connection.execute(statements_of(rows, target).create(declared_for(rows)))
    table_schema = table_schema_of(connection, *split_name(target.table))
    assert table_schema is not None
    return table_schema


def _row_validator(sink: SinkName, target: Target, table_schema: TableSchema) -> RowValidator:
    key = frozenset(map(folded, target.key))
    octets = {column.name: most_bytes(column.declared) for column in table_schema.columns}
    return RowValidator(
        sink=sink,
        table=target.table,
        required=table_schema.required | key,
        key=key,
        octets={name: most for name, most in octets.items() if most is not None},
        max_row_bytes=MAX_ROW_BYTES,
    )
