"""Reading of a query's rows as Arrow batches of a known schema."""

import sqlite3
from collections.abc import Iterator

import pyarrow as pa

from penstock.sink.sqlite.storage import restored
from penstock.sink.table.storage import batch_of

_FETCHED_ROWS = 20_000


def scan(cursor: sqlite3.Cursor, query: str, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Yield the rows of `query`, whose columns are those of `schema`. Raises NotStoredError, naming the column."""
    cursor.row_factory = None
    cursor.execute(query)
    while rows := cursor.fetchmany(_FETCHED_ROWS):
        yield batch_of(rows, schema, restored)
