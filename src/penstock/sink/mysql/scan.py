"""Rows of a query as Arrow batches of a known schema."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.sink.mysql.connection import Connection
from penstock.sink.mysql.storage import restored
from penstock.sink.table.target import NotStoredError


def scan(connection: Connection, query: str, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """The rows of `query`, whose columns are those of `schema`. Raises NotStoredError, naming the column."""
    for rows in connection.stream(query):
        columns = [_restored(field, values) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=schema.names)


def _restored(field: "pa.Field", values: tuple[Any, ...]) -> "pa.Array":
    try:
        return restored(values, field.type)
    except NotStoredError as cause:
        raise NotStoredError(f"column {field.name!r}: {cause}") from cause
