"""Getting the table ready: created or checked, and its marker made, in one transaction."""

import sqlite3
from dataclasses import replace

import pyarrow as pa

from penstock.errors import Refused, Usage
from penstock.model import PipelineName, SinkName, Totals
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.admission import Admission
from penstock.sink.sqlite.marker import TableMarker, read_marker, write_marker
from penstock.sink.sqlite.publication import Target, other_table
from penstock.sink.sqlite.scan import scan, totals_of
from penstock.sink.sqlite.storage import NotStoredError
from penstock.sink.sqlite.table import Shape, create_statement, require_continued, require_fit, require_storable, shape_of
from penstock.sparkschema import arrow_schema


def create_own_tables(cursor: sqlite3.Cursor) -> None:
    """Create the marker's tables where they are missing."""
    cursor.execute(sql.CREATE_MARKER_TABLE)
    cursor.execute(sql.CREATE_BATCH_TABLE)


def prepare_table(
    cursor: sqlite3.Cursor, *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, create: bool
) -> Admission:
    """Make the table fit rows of Spark's `schema`, and its marker; give the check for the tasks. Raises Usage, Refused."""
    rows, key = arrow_schema(schema), target.key
    _require_storable(rows, target, sink)
    _require_there(cursor, pipeline, sink, target.table)
    shape = _existing(cursor, rows, target.table, key, create=create)
    require_fit(shape, rows, target.table, key)
    _prepare_marker(cursor, pipeline, sink, schema, target)
    reals = frozenset(field.name.lower() for field in rows if pa.types.is_floating(field.type))
    return Admission(
        sink=sink,
        table=target.table,
        required=shape.required | {name.lower() for name in key},
        no_nan=reals if shape.strict else frozenset(),
    )


def require_admitted(
    cursor: sqlite3.Cursor | None, *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, create: bool
) -> None:
    """Raise what `prepare_table` would, changing nothing; no `cursor`: there is no database yet."""
    rows = arrow_schema(schema)
    _require_storable(rows, target, sink)
    if cursor is None:
        return
    if shape_of(cursor, sql.MARKER_TABLE) is not None:
        _require_there(cursor, pipeline, sink, target.table)
    shape = shape_of(cursor, target.table)
    if shape is not None:
        require_fit(shape, rows, target.table, target.key)
    elif not create:
        raise _no_table(target.table)


def _require_storable(rows: "pa.Schema", target: Target, sink: SinkName) -> None:
    try:
        require_storable(rows, target.table, target.key)
    except Usage as wrong:
        raise Usage(f"Sink {sink!r}: {wrong.message}", remedy=wrong.remedy) from wrong


def _no_table(table: str) -> Refused:
    return Refused(f"There is no table {table!r} in the database.", remedy="Create it, or set `create: true`.")


def _require_there(cursor: sqlite3.Cursor, pipeline: PipelineName, sink: SinkName, table: str) -> None:
    """Raise Refused for a table that is gone with the rows that were published into it: an empty new one would hide the loss."""
    marker = read_marker(cursor, pipeline, sink)
    if marker is None or marker.table_name.lower() != table.lower() or shape_of(cursor, table) is not None:
        return
    rows = marker.before.rows + marker.after.rows
    if rows:
        raise Refused(
            f"Table {table!r} is gone, and {rows} rows with it that were published.",
            remedy="Rename it back or restore it from a backup; or give the sink another name, to fill a new table from here on.",
        )


def _existing(cursor: sqlite3.Cursor, rows: "pa.Schema", table: str, key: tuple[str, ...], *, create: bool) -> Shape:
    shape = shape_of(cursor, table)
    if shape is None and create:
        cursor.execute(create_statement(rows, table, key))
        shape = shape_of(cursor, table)
    if shape is None:
        raise _no_table(table)
    return shape


def _prepare_marker(cursor: sqlite3.Cursor, pipeline: PipelineName, sink: SinkName, schema: str, target: Target) -> None:
    marker = read_marker(cursor, pipeline, sink)
    if marker is None:
        _require_unowned(cursor, pipeline, sink, target.table)
        before = Totals() if target.write == "replace" else _content(cursor, schema, target.table)
        write_marker(
            cursor,
            TableMarker(pipeline=pipeline, sink=sink, table_name=target.table, write=target.write, schema=schema, before=before),
        )
        return
    if marker.table_name.lower() != target.table.lower():
        raise other_table(marker, target.table)
    if marker.schema is not None and target.write != "replace":
        require_continued(arrow_schema(marker.schema), arrow_schema(schema), target.table)
    if marker.schema is None:
        write_marker(cursor, replace(marker, schema=schema))


def _require_unowned(cursor: sqlite3.Cursor, pipeline: PipelineName, sink: SinkName, table: str) -> None:
    owner = cursor.execute(sql.OTHER_OWNERS, {"table_name": table, "pipeline": pipeline, "sink": sink}).fetchone()
    if owner is not None:
        raise Refused(
            f"Table {table!r} is filled by sink {owner[1]!r} of pipeline {owner[0]!r}, so it could be proved for neither.",
            remedy="Give every sink a table of its own and join them by a view.",
        )


def _content(cursor: sqlite3.Cursor, schema: str, table: str) -> Totals:
    rows = arrow_schema(schema)
    query = sql.TableStatements(table, tuple(rows.names)).read()
    try:
        return totals_of(scan(cursor, query, rows))
    except NotStoredError as cause:
        raise Refused(
            f"Table {table!r} holds rows that Penstock could not have stored, so nothing in it could be proved: {cause}.",
            remedy="Correct them, or use another table.",
        ) from cause
