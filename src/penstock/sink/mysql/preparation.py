"""Preparation of the user's table: it is created or checked, and then its marker is created.

MySQL commits at every CREATE TABLE. So tables are created first. If a run ends in between, the next one finds an empty table.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pymysql

from penstock.core.model import PipelineName, SinkName, Totals
from penstock.errors import Refused
from penstock.sink.mysql import statements as sql
from penstock.sink.mysql.marker_store import MysqlMarkerStore
from penstock.sink.mysql.rehearsal import rehearse, rehearse_merge
from penstock.sink.mysql.row_validator import RowValidator
from penstock.sink.mysql.scan import scan
from penstock.sink.mysql.storage import most_bytes, most_characters, storage_of
from penstock.sink.mysql.table_schema import (
    TableSchema,
    declared_for,
    require_fit,
    require_storable,
    statements_of,
    table_schema_of,
)
from penstock.sink.table.content import totals_of
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.marker_store import DBAPI_MARKER_TABLE
from penstock.sink.table.preparation import prepare_marker, require_not_lost, require_unfilled, settings_of, unnamed_markers
from penstock.sink.table.target import PRIVILEGES, Target, no_table
from penstock.spark.schema import arrow_schema
from penstock.sql.mysql import statements as of_session
from penstock.sql.mysql.catalog import ENGINE, kind_of
from penstock.sql.mysql.connection import Connection
from penstock.sql.mysql.database import one_at_a_time
from penstock.sql.mysql.errors import DENIED, code_of, reason_of, without_view
from penstock.sql.mysql.server import Server


def prepare_table(
    connection: Connection,
    *,
    server: Server,
    pipeline: PipelineName,
    sink: SinkName,
    schema: str,
    target: Target,
    create: bool,
) -> RowValidator:
    """Create or check the table for rows of Spark's `schema`, and its marker. Raises Usage, Refused."""
    rows = arrow_schema(schema)
    with settings_of(sink):
        require_storable(rows, target)
    with one_at_a_time(connection):
        rehearse(connection, rows, target, server)
        _create_own_tables(connection)
        table_schema, markers = table_schema_of(connection, target.table), MysqlMarkerStore(connection, locking=True)
        marker = MysqlMarkerStore(connection, locking=False).read(pipeline, sink)
        require_not_lost(marker, target, exists=table_schema is not None)
        if marker is None and table_schema_of(connection, DBAPI_MARKER_TABLE) is not None:
            require_unfilled(connection.execute(sql.OWNERS_OF_DBAPI).fetchall(), target.table)
        table_schema = table_schema or _created(connection, rows, target, server, create=create)
        require_fit(table_schema, rows, target, server)
        require_allowed(connection, rows, target)
        rehearse_merge(connection, rows, target, server)
        connection.execute(of_session.BEGIN)
        content = partial(content_of, connection, rows, target)
        prepare_marker(markers, pipeline=pipeline, sink=sink, schema=schema, target=target, content=content)
        connection.execute(of_session.COMMIT)
    return _row_validator(sink, target, table_schema, server)


def require_schema_accepted(
    connection: Connection,
    *,
    server: Server,
    pipeline: PipelineName,
    sink: SinkName,
    schema: str,
    target: Target,
    create: bool,
) -> None:
    """Raise the errors of `prepare_table` about settings, table, privileges and staging, changing nothing."""
    rows = arrow_schema(schema)
    with settings_of(sink):
        require_storable(rows, target)
    table_schema = table_schema_of(connection, target.table)
    markers = readable_marker_store(connection)
    if markers is not None:
        require_not_lost(markers.read(pipeline, sink), target, exists=table_schema is not None)
    if table_schema is None and not create:
        raise no_table(target.table)
    if table_schema is not None:
        require_fit(table_schema, rows, target, server)
    connection.execute(of_session.COMMIT)  # a read-only transaction cannot even EXPLAIN a write
    rehearse(connection, rows, target, server)
    if table_schema is not None:
        require_allowed(connection, rows, target)
        rehearse_merge(connection, rows, target, server)


def name_markers(connection: Connection) -> None:
    """Add the column `ledger_id` to the markers' table of an older Penstock. Raises Refused, Retryable."""
    if not _is_unnamed(table_schema_of(connection, sql.MARKER_TABLE)):
        return
    with one_at_a_time(connection):
        if _is_unnamed(table_schema_of(connection, sql.MARKER_TABLE)):
            try:
                connection.execute(sql.ADD_LEDGER_ID)
            except pymysql.err.Error as cause:
                if code_of(cause) not in DENIED:
                    raise
                raise unnamed_markers(sql.ADD_LEDGER_ID, reason_of(cause)) from cause


def readable_marker_store(connection: Connection) -> MysqlMarkerStore | None:
    """Return the markers without locking them, also those of an older Penstock; None if their table does not exist."""
    table_schema = table_schema_of(connection, sql.MARKER_TABLE)
    return None if table_schema is None else MysqlMarkerStore(connection, locking=False, named=not _is_unnamed(table_schema))


def _is_unnamed(table_schema: TableSchema | None) -> bool:
    return table_schema is not None and table_schema.column(LEDGER_ID) is None


def require_allowed(connection: Connection, rows: "pa.Schema", target: Target) -> None:
    """Raise Refused if the user lacks a privilege that publishing needs."""
    tries = statements_of(rows, target).tries()
    for right in PRIVILEGES[target.write]:
        with _granted(f"{right} ON {target.table}"):
            connection.execute(tries[right])


def content_of(connection: Connection, rows: "pa.Schema", target: Target) -> Totals:
    """Return the count and the digest of all rows of the table. Raises NotStoredError."""
    query = statements_of(rows, target).read([storage_of(field.type).read for field in rows])
    return totals_of(scan(connection, query, rows), target.row_digest)


@contextmanager
def _granted(right: str) -> Iterator[None]:
    try:
        yield
    except pymysql.err.Error as cause:
        if not cause.args or cause.args[0] not in DENIED:
            raise
        raise Refused(f"The user lacks {right}: {reason_of(cause)}.", remedy=f"GRANT {right} to it.") from cause


def _create_own_tables(connection: Connection) -> None:
    for table, create in ((sql.MARKER_TABLE, sql.CREATE_MARKER), (sql.BATCH_TABLE, sql.CREATE_BATCH)):
        table_schema = table_schema_of(connection, table)
        if table_schema is None:
            connection.execute(create)
        elif table_schema.engine != ENGINE:
            raise Refused(
                f"Table {table!r} is of the engine {table_schema.engine}, expected {ENGINE}.",
                remedy=f"ALTER TABLE {table} ENGINE = {ENGINE}.",
            )
    if kind_of(connection, sql.OFFSETS_VIEW) is None:
        with without_view():
            connection.execute(sql.CREATE_OFFSETS)


def _created(connection: Connection, rows: "pa.Schema", target: Target, server: Server, *, create: bool) -> TableSchema:
    if not create:
        raise no_table(target.table)
    connection.execute(statements_of(rows, target).create(declared_for(rows, target.key, server)))
    table_schema = table_schema_of(connection, target.table)
    assert table_schema is not None
    return table_schema


def _row_validator(sink: SinkName, target: Target, table_schema: TableSchema, server: Server) -> RowValidator:
    tried = target.merge is not None  # the staging table takes all rows of a merge
    declared = {} if tried else {column.name.lower(): column.declared for column in table_schema.columns}
    characters = {name: most_characters(kind) for name, kind in declared.items()}
    octets = {name: most_bytes(kind) for name, kind in declared.items()}
    return RowValidator(
        sink=sink,
        table=target.table,
        required=frozenset() if tried else table_schema.required | frozenset(name.lower() for name in target.key),
        characters={name: length for name, length in characters.items() if length is not None},
        octets={name: length for name, length in octets.items() if length is not None},
        since_1970=frozenset(name for name, kind in declared.items() if kind.startswith("timestamp")),
        max_value_bytes=server.max_value_bytes,
        max_insert_bytes=server.max_insert_bytes,
    )
