"""Reading of a query's rows as Arrow batches of a known schema."""

from collections.abc import Iterator

import pyarrow as pa

from penstock.sink.mysql.storage import restored
from penstock.sink.table.storage import batch_of
from penstock.sql.mysql.connection import Connection


def scan(connection: Connection, query: str, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Yield the rows of `query`, whose columns are those of `schema`. Raises NotStoredError, naming the column."""
    for rows in connection.stream(query):
        yield batch_of(rows, schema, restored)
