"""The cassandra sink passes the suite on a real node: inline, from spool files, and with both ways of writing."""

import datetime as dt
import os
import random
import signal
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.beside_driver import looks_of
from tests.conformance.table_rig import Deleting, ForgottenSpool, Spooled, TableRig, TruncatedSpool, named
from tests.seed import SEED
from tests.servers.cassandra import PASSWORD, ROLE, connected
from tests.servers.fixtures import open_until_stopped, server, unique

from penstock.core.model import SinkName
from penstock.sink.cassandra.sink import CassandraSink
from penstock.sink.table.sink import TableSinkArguments
from penstock.testing.conformance import (
    SWAPPED,
    CrashContract,
    IdentityContract,
    Row,
    SinkContract,
    StagingLossContract,
    VerifyBesideDriverContract,
    make_rows,
    require_equal,
)
from penstock.testing.conformance.publishing import PublishContract
from penstock.testing.conformance.story import end, live, rows_of, start, verify

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "4"))

KEYSPACE = "Conformance"
TABLES = "SELECT table_name FROM system_schema.tables"


class CassandraRig(TableRig):
    """Cassandra has milliseconds, and no transactions: a reader may see a part of a batch. Append, small pieces inline."""

    key = ("id",)
    whole_batches = False

    def __init__(self, directory: Path, url: str, table: str) -> None:
        super().__init__(directory)
        self.url, self.table = url, table

    def make(self) -> CassandraSink:
        return CassandraSink(url=self.url, **self.filling(self.table))

    def filling(self, table: str) -> TableSinkArguments:
        return {**super().filling(table), "name": SinkName(f"into_{table}")}

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [{**row, "seen": in_milliseconds(row["seen"])} for row in make_rows(ids)]

    def unit_of(self, row: Row) -> object:
        return row["id"]

    def read_back(self) -> Iterable[Row]:
        session = session_of(self.url)
        if not session.execute(f"{TABLES} WHERE keyspace_name = %s AND table_name = %s", (KEYSPACE, self.table)).all():
            return []
        return [as_written(row._asdict()) for row in session.execute(f'SELECT * FROM "{self.table}"')]

    def damage(self, kind: str) -> None:
        rows = list(self.read_back())
        victim = next(row for row in rows if row["id"] == SWAPPED) if kind == "swapped" else max(rows, key=lambda row: row["id"])
        where = " AND ".join(f'"{name}" = %({name})s' for name in self.key)
        statement = {
            "lost": f'DELETE FROM "{self.table}" WHERE {where}',
            "changed": f"UPDATE \"{self.table}\" SET name = 'other' WHERE {where}",
            "foreign": f"INSERT INTO \"{self.table}\" (id, place) VALUES (-1, 'foreign')",
            "swapped": f'UPDATE "{self.table}" SET number = NULL, price = 0 WHERE {where}',
        }[kind]
        session_of(self.url).execute(statement, dict(victim))

    def execute(self, statement: str) -> int:
        """Cassandra does not say how many rows that was about."""
        session_of(self.url).execute(statement)
        return 1


class SpooledRig(Spooled, CassandraRig):
    pass


class TruncatedSpoolRig(TruncatedSpool, CassandraRig):
    pass


class ForgottenSpoolRig(ForgottenSpool, CassandraRig):
    pass


class UpsertRig(Spooled, CassandraRig):
    write = "upsert"
    key = ("place", "id")


class DeleteRig(Deleting, CassandraRig):
    key = ("place", "id")


@cache
def session_of(url: str) -> Any:
    """Another client than the product's settings make, open until the end."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    return open_until_stopped("cassandra", connected(port, ROLE, PASSWORD, KEYSPACE))


def keyspace() -> str:
    """Its URL; one for all, since a table of its own is enough for a rig."""
    return database_of(server("cassandra"))


@cache
def database_of(running: Any) -> str:
    return str(running.database(KEYSPACE))


def in_milliseconds(moment: dt.datetime | None) -> dt.datetime | None:
    return None if moment is None else moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def as_written(row):
    """The driver has a type of its own for days, and makes moments of floating seconds, in UTC."""
    day, seen = row["day"], row["seen"]
    moment = None if seen is None else (seen + dt.timedelta(microseconds=500)).replace(tzinfo=dt.timezone.utc)
    return {**row, "day": None if day is None else day.date(), "seen": in_milliseconds(moment)}


def rig_on_server(rig: type[CassandraRig], directory: Path) -> CassandraRig:
    (directory / "rig").mkdir()
    return rig(directory / "rig", keyspace(), unique("t"))


class TestCassandra(SinkContract, IdentityContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestCassandraAppending(PublishContract, IdentityContract):
    """What differs from an upsert: nothing is read before it is written."""

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(CassandraRig, tmp_path)


class TestCassandraBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("cassandra", fewer=25), 10  # of some milliseconds each

    @pytest.fixture(params=[DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestCassandraStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledRig, TruncatedSpoolRig, ForgottenSpoolRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestCassandraCrashes(CrashContract):
    """By key, which takes the most steps, with rows that delete."""

    fault_parts = ("cassandra",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(DeleteRig, tmp_path)


def test_a_driver_that_is_killed_at_any_moment(tmp_path: Path) -> None:
    """Again and again, while another one looks; the next one goes on, and every row is there once."""
    print("seed", SEED)
    chance, rig = random.Random(SEED), rig_on_server(UpsertRig, tmp_path)
    for number in (0, 1):  # the first one on a node that has just started takes longer
        began = time.monotonic()
        assert end(start(live, rig, [number])) == 0
    about_as_long_s, killed = time.monotonic() - began, 0
    for number in range(2, KILLS + 2):
        process = start(live, rig, [number])
        process.join(chance.uniform(0.1, 1) * about_as_long_s)
        process.kill()
        killed += end(process) == -signal.SIGKILL
        live(rig, [number])
        require_equal(rig.read_back(), [row for at in range(number + 1) for row in rows_of(at, rig)])
    print("killed", killed, "times")
    report = verify(rig)
    assert report.ok, report
    assert list(rig.leftovers()) == []
