"""Rows of a query as Arrow batches of a known schema."""

import sqlite3
from collections.abc import Iterator

import pyarrow as pa

from penstock.sink.sqlite.storage import restored
from penstock.sink.table.target import NotStoredError

_FETCHED_ROWS = 20_000


def scan(cursor: sqlite3.Cursor, query: str, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """The rows of `query`, whose columns are those of `schema`. Raises NotStoredError, naming the column."""
    cursor.row_factory = None
    cursor.execute(query)
    while rows := cursor.fetchmany(_FETCHED_ROWS):
        columns = [_restored(field, list(values)) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=schema.names)


def _restored(field: "pa.Field", values: list[object]) -> "pa.Array":
    try:
        return restored(values, field.type)
    except NotStoredError as cause:
        raise NotStoredError(f"column {field.name!r}: {cause}") from cause
