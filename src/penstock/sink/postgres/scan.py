"""Rows of a query as Arrow batches of a known schema."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
from psycopg.sql import Composed

from penstock.sink.postgres.database import Connection
from penstock.sink.postgres.storage import restored
from penstock.sink.table.target import NotStoredError

_FETCHED_ROWS = 20_000


def scan(connection: Connection, query: Composed, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """The rows of `query`, whose columns are those of `schema`, through a cursor in the open transaction.

    Raises NotStoredError, naming the column.
    """
    with closing(connection.cursor("penstock_scan", binary=True)) as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(_FETCHED_ROWS):
            columns = [_restored(field, values) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=schema.names)


def _restored(field: "pa.Field", values: tuple[Any, ...]) -> "pa.Array":
    try:
        return restored(values, field.type)
    except NotStoredError as cause:
        raise NotStoredError(f"column {field.name!r}: {cause}") from cause
