"""Reading of a query's rows as Arrow batches of a known schema."""

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.sql import Composed

from penstock.sink.postgres.storage import STORAGES
from penstock.sink.table.target import NotStoredError
from penstock.sql.postgres.database import Connection

_FETCHED_ROWS = 20_000


def scan(connection: Connection, query: Composed, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Yield the rows of `query`, whose columns are those of `schema`, through a server-side cursor in the open transaction.

    Raises NotStoredError, naming the column.
    """
    with closing(connection.cursor("penstock_scan", binary=True)) as cursor:
        for name, loader in _LOADERS.items():
            cursor.adapters.register_loader(name, loader)
        cursor.execute(query)
        yield from STORAGES.batches(iter(lambda: cursor.fetchmany(_FETCHED_ROWS), []), schema)


# --- loaders of binary values, since Python's dates have a narrower range


class _Integer(Loader):
    """Loads a date as days, a time or timestamp as microseconds."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return int.from_bytes(data, "big", signed=True)


class _Interval(Loader):
    """Loads an interval as microseconds. Days and months have no fixed length, and Spark's intervals have neither."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        if any(bytes(data[8:16])):
            raise NotStoredError("expected an interval of hours and less, found days or months in it")
        return int.from_bytes(data[:8], "big", signed=True)


_LOADERS: dict[str, type[Loader]] = {
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), _Integer),
    "interval": _Interval,
}
