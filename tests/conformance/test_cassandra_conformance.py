"""The cassandra sink passes the suite on a real node: inline, from spool files, and with both ways of writing."""

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.conformance.table_rig import ForgottenSpool, Spooled, TableRig, TruncatedSpool, named
from tests.servers.cassandra import connected
from tests.servers.fixtures import server, unique

from penstock.model import SinkName
from penstock.sink.cassandra.database import Connection
from penstock.sink.cassandra.address import address_of
from penstock.sink.cassandra.sink import CassandraSink
from penstock.sink.table.sink import Filling
from penstock.testing.conformance import CrashContract, Row, SinkContract, StagingLossContract, make_rows

KEYSPACE = "Conformance"


class CassandraRig(TableRig):
    """Cassandra has milliseconds, and no transactions: a reader may see a part of a batch. Append, small pieces inline."""

    key = ("id",)
    whole_batches = False

    def __init__(self, directory: Path, url: str, table: str) -> None:
        super().__init__(directory)
        self.url, self.table = url, table

    def make(self) -> CassandraSink:
        return CassandraSink(url=self.url, **self.filling(self.table))

    def filling(self, table: str) -> Filling:
        return {**super().filling(table), "name": SinkName(f"into_{table}")}

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [{**row, "seen": in_milliseconds(row["seen"])} for row in make_rows(ids)]

    def unit_of(self, row: Row) -> object:
        return row["id"]

    def read_back(self) -> Iterable[Row]:
        with session_at(self.url) as session:
            if not session.execute("SELECT 1 FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s", (KEYSPACE, self.table)).all():
                return []
            return [as_written(row._asdict()) for row in session.execute(f'SELECT * FROM "{self.table}"')]

    def damage(self, kind: str) -> None:
        newest = max(self.read_back(), key=lambda row: row["id"])
        where = " AND ".join(f'"{name}" = %({name})s' for name in self.key)
        statement = {
            "lost": f'DELETE FROM "{self.table}" WHERE {where}',
            "changed": f"UPDATE \"{self.table}\" SET name = 'other' WHERE {where}",
            "foreign": f"INSERT INTO \"{self.table}\" (id, place) VALUES (-1, 'foreign')",
        }[kind]
        with session_at(self.url) as session:
            session.execute(statement, dict(newest))


class SpooledRig(Spooled, CassandraRig):
    pass


class TruncatedSpoolRig(TruncatedSpool, CassandraRig):
    pass


class ForgottenSpoolRig(ForgottenSpool, CassandraRig):
    pass


class UpsertRig(Spooled, CassandraRig):
    write = "upsert"
    key = ("place", "id")
