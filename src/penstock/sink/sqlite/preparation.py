"""Preparation of the user's table: it is created or checked, and its marker created, in one transaction."""

import sqlite3
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from penstock.core.model import PipelineName, SinkName, Totals
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.marker_store import SqliteMarkerStore, readable_marker_store
from penstock.sink.sqlite.row_validator import RowValidator
from penstock.sink.sqlite.scan import scan
from penstock.sink.sqlite.statements import TableStatements
from penstock.sink.sqlite.table_schema import (
    TableSchema,
    create_statement,
    require_fit,
    require_storable,
    table_schema_of,
    with_row_numbers,
)
from penstock.sink.table.content import totals_of
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.marker_store import DBAPI_MARKER_TABLE
from penstock.sink.table.preparation import prepare_marker, require_not_lost, require_unfilled, settings_of
from penstock.sink.table.target import Target, no_table, table_gone
from penstock.spark.schema import arrow_schema


def create_own_tables(cursor: sqlite3.Cursor) -> None:
    """Create Penstock's own tables where they are missing, and add the column that an older Penstock did not create."""
    cursor.execute(sql.CREATE_MARKER_TABLE)
    table_schema = table_schema_of(cursor, sql.MARKER_TABLE)
    if table_schema is not None and all(column.name != LEDGER_ID for column in table_schema.columns):
        cursor.execute(sql.ADD_LEDGER_ID)
    cursor.execute(sql.CREATE_BATCH_TABLE)


def prepare_table(
    cursor: sqlite3.Cursor, *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, create: bool
) -> RowValidator:
    """Create or check the table for rows of Spark's `schema`, and its marker. Raises Usage, Refused."""
    rows, key = arrow_schema(schema), target.key
    with settings_of(sink):
        require_storable(rows, target.table, target.key)
    markers = SqliteMarkerStore(cursor)
    marker = markers.read(pipeline, sink)
    require_not_lost(marker, target, exists=table_schema_of(cursor, target.table) is not None)
    if marker is None and table_schema_of(cursor, DBAPI_MARKER_TABLE) is not None:
        require_unfilled(cursor.execute(sql.OWNERS_OF_DBAPI), target.table)
    table_schema = _existing(cursor, rows, target.table, key, create=create)
    require_fit(table_schema, rows, target.table, key)
    content = partial(_content, cursor, rows, target)
    prepare_marker(markers, pipeline=pipeline, sink=sink, schema=schema, target=target, content=content)
    reals = frozenset(field.name.lower() for field in rows if pa.types.is_floating(field.type))
    return RowValidator(
        sink=sink,
        table=target.table,
        required=table_schema.required | {name.lower() for name in key},
        no_nan=reals if table_schema.strict else frozenset(),
    )


def require_schema_accepted(
    cursor: sqlite3.Cursor | None, *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, create: bool
) -> None:
    """Raise the errors of `prepare_table` about settings and table, changing nothing; `cursor` is None without a database."""
    rows = arrow_schema(schema)
    with settings_of(sink):
        require_storable(rows, target.table, target.key)
    if cursor is None:
        return
    table_schema = table_schema_of(cursor, target.table)
    markers = readable_marker_store(cursor)
    if markers is not None:
        require_not_lost(markers.read(pipeline, sink), target, exists=table_schema is not None)
    if table_schema is not None:
        require_fit(table_schema, rows, target.table, target.key)
    elif not create:
        raise no_table(target.table)


def decided_rows(
    cursor: sqlite3.Cursor, rows: Iterator["pa.RecordBatch"], schema: str, target: Target
) -> Iterator["pa.RecordBatch"]:
    """Return the rows. Raises Refused if the table was altered since the decision and refuses rows or would change them."""
    table_schema = table_schema_of(cursor, target.table)
    if table_schema is None:
        raise table_gone(target.table)
    require_fit(table_schema, arrow_schema(schema), target.table, target.key, decided=True)
    return with_row_numbers(table_schema, rows, target.table)


def _existing(cursor: sqlite3.Cursor, rows: "pa.Schema", table: str, key: tuple[str, ...], *, create: bool) -> TableSchema:
    table_schema = table_schema_of(cursor, table)
    if table_schema is None and create:
        cursor.execute(create_statement(rows, table, key))
        table_schema = table_schema_of(cursor, table)
    if table_schema is None:
        raise no_table(table)
    return table_schema


def _content(cursor: sqlite3.Cursor, rows: "pa.Schema", target: Target) -> Totals:
    query = TableStatements(target.table, tuple(rows.names)).read()
    return totals_of(scan(cursor, query, rows), target.row_digest)
