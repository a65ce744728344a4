"""Prepares a Cassandra table: creates or checks it, then creates its marker.

Each statement stands for itself. A run that ends in between leaves an empty table, or one without a marker, to the next one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from cassandra import InvalidRequest, Unauthorized

from penstock.core.model import PipelineName, SinkName
from penstock.errors import Conflict, Refused, Retryable
from penstock.sink.cassandra import statements as sql
from penstock.sink.cassandra.database import Connection
from penstock.sink.cassandra.errors import reason_of
from penstock.sink.cassandra.load import content_of
from penstock.sink.cassandra.marker_store import CassandraMarkerStore
from penstock.sink.cassandra.row_validator import MAX_ROW_BYTES, RowValidator
from penstock.sink.cassandra.storage import storage_of
from penstock.sink.cassandra.table_schema import TableSchema, require_fit, table_schema_of
from penstock.sink.cassandra.target import CassandraTarget, require_storable
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.preparation import prepare_marker, require_not_lost, settings_of
from penstock.sink.table.target import no_table
from penstock.spark.schema import arrow_schema


def prepare_table(
    connection: Connection, *, pipeline: PipelineName, sink: SinkName, schema: str, target: CassandraTarget, create: bool
) -> RowValidator:
    """Fit the table to rows of `schema`, create its marker, and return the tasks' check. Raises Usage, Refused, Retryable."""
    rows = arrow_schema(schema)
    with settings_of(sink):
        require_storable(rows, target)
    for table, statement in ((sql.MARKER_TABLE, sql.CREATE_MARKER), (sql.BATCH_TABLE, sql.CREATE_BATCH)):
        if table_schema_of(connection, table) is None:
            _create(connection, statement)
    if not _is_named(table_schema_of(connection, sql.MARKER_TABLE)):
        _name_markers(connection)
    markers = CassandraMarkerStore(connection.execute)
    table_schema = table_schema_of(connection, target.table)
    require_not_lost(markers.read(pipeline, sink), target, exists=table_schema is not None)
    table_schema = table_schema or _created(connection, rows, target, create=create)
    require_fit(table_schema, rows, target)
    require_allowed(connection, rows, target)
    content = partial(content_of, connection, rows, target)
    try:
        prepare_marker(markers, pipeline=pipeline, sink=sink, schema=schema, target=target, content=content)
    except Conflict as conflict:
        raise Retryable("Another run made the marker at the same time.", remedy="Try again.") from conflict
    return row_validator_of(sink, target)


def require_schema_accepted(
    connection: Connection, *, pipeline: PipelineName, sink: SinkName, schema: str, target: CassandraTarget, create: bool
) -> None:
    """Raise what `prepare_table` would raise. Changes nothing."""
    rows = arrow_schema(schema)
    table_schema = table_schema_of(connection, target.table)
    with settings_of(sink):
        require_storable(rows, target)
    markers = readable_marker_store(connection)
    if markers is not None:
        require_not_lost(markers.read(pipeline, sink), target, exists=table_schema is not None)
    if table_schema is not None:
        require_fit(table_schema, rows, target)
        require_allowed(connection, rows, target)
    elif not create:
        raise no_table(target.table)


def readable_marker_store(connection: Connection) -> CassandraMarkerStore | None:
    """Return the markers as they are, also those of an older Penstock; None where there are none yet."""
    table_schema = table_schema_of(connection, sql.MARKER_TABLE)
    return None if table_schema is None else CassandraMarkerStore(connection.execute, named=_is_named(table_schema))


def _is_named(table_schema: TableSchema | None) -> bool:
    return table_schema is not None and any(column.name == LEDGER_ID for column in table_schema.columns)


def _name_markers(connection: Connection) -> None:
    """Add the column that a table of an older Penstock lacks, unless another driver does so at the same time."""
    try:
        with _granted("ALTER", sql.MARKER_TABLE):
            connection.define(sql.NAME_MARKERS)
    except InvalidRequest:
        if not _is_named(table_schema_of(connection, sql.MARKER_TABLE)):
            raise


def row_validator_of(sink: SinkName, target: CassandraTarget) -> RowValidator:
    """Return the check of the rows in the tasks."""
    return RowValidator(
        sink=sink,
        table=target.table,
        required=frozenset(target.key),
        max_row_bytes=MAX_ROW_BYTES,
        key=target.key,
        lone=target.partition[0] if len(target.partition) == 1 else None,
    )


def require_allowed(connection: Connection, rows: "pa.Schema", target: CassandraTarget) -> None:
    """Raise Refused where the user lacks a right. A row without a key tests writing: it is refused after the right was found."""
    statements = target.statements(rows)
    with _granted("SELECT", target.table):
        connection.execute(statements.look)
    with _granted("MODIFY", target.table):
        try:
            connection.define(statements.insert_keyless)
        except InvalidRequest:
            return
    raise AssertionError("a row without a key was written")


@contextmanager
def _granted(right: str, table: str) -> Iterator[None]:
    try:
        yield
    except Unauthorized as cause:
        raise Refused(
            f"The user lacks {right} on {table}: {reason_of(cause)}.", remedy=f"GRANT {right} ON {table} to it."
        ) from cause


def _created(connection: Connection, rows: "pa.Schema", target: CassandraTarget, *, create: bool) -> TableSchema:
    if not create:
        raise no_table(target.table)
    declared = [storage_of(field.type).declared(field.type) for field in rows]
    _create(connection, target.statements(rows).create(declared, target.partition))
    table_schema = table_schema_of(connection, target.table)
    assert table_schema is not None
    return table_schema


def _create(connection: Connection, statement: str) -> None:
    with _granted("CREATE", f"KEYSPACE {connection.keyspace}"):
        connection.define(statement)
