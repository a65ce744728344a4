"""Rows of a query as Arrow batches of a known schema."""

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.sql import Composed

from penstock.sink.postgres.storage import restored
from penstock.sink.table.storage import batch_of
from penstock.sink.table.target import NotStoredError
from penstock.sql.postgres.database import Connection

_FETCHED_ROWS = 20_000


def scan(connection: Connection, query: Composed, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """The rows of `query`, whose columns are those of `schema`, through a cursor in the open transaction.

    Raises NotStoredError, naming the column.
    """
    with closing(connection.cursor("penstock_scan", binary=True)) as cursor:
        for name, loader in _LOADERS.items():
            cursor.adapters.register_loader(name, loader)
        cursor.execute(query)
        while rows := cursor.fetchmany(_FETCHED_ROWS):
            yield batch_of(rows, schema, restored)


# --- values as PostgreSQL sends them, without Python's narrower dates in between


class _Integer(Loader):
    """A date in days, a time or timestamp in microseconds."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return int.from_bytes(data, "big", signed=True)


class _Interval(Loader):
    """An interval in microseconds. Days and months have no length of their own, and Spark's intervals have neither."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        if any(bytes(data[8:16])):
            raise NotStoredError("expected an interval of hours and less, found days or months in it")
        return int.from_bytes(data[:8], "big", signed=True)


_LOADERS: dict[str, type[Loader]] = {
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), _Integer),
    "interval": _Interval,
}
