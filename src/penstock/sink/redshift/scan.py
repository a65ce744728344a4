"""The rows of a Redshift query as Arrow batches of a known schema."""

from collections.abc import Iterator

import pyarrow as pa

from penstock.sink.redshift.connection import Connection
from penstock.sink.redshift.storage import restored
from penstock.sink.table.storage import batch_of


def scan(connection: Connection, query: str, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Yield the rows of `query`, whose columns are those of `schema`. Raise NotStoredError, naming the column."""
    for rows in connection.stream(query):
        yield batch_of(rows, schema, restored)
