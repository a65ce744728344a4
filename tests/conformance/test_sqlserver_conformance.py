"""The sqlserver sink passes the suite on what stands in for SQL Server: its recorded statements, really executed by SQLite."""

import math
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.conformance.table_rig import (
    Deleting,
    DialectContract,
    ForgottenSpool,
    InsertingIfAbsent,
    Newest,
    Replacing,
    Spooled,
    TableRig,
    TruncatedSpool,
    Upserting,
    named,
    rig_below,
)
from tests.servers import tsql
from tests.servers.tsql_in_sqlite import restored

from penstock.sink.sqlserver.sink import SqlserverSink
from penstock.testing.conformance import (
    CrashContract,
    IdentityContract,
    Row,
    StagingLossContract,
    VerifyBesideDriverContract,
    make_rows,
)
from penstock.testing.conformance.publishing import PublishContract
from penstock.testing.conformance.verifying import VerifyContract

TABLE = '"a schema%"."a ""table"" of 100% ] -- order"'


class SqlserverRig(TableRig):
    """SQL Server has no NaN, no infinities, and nothing nearer to zero than the least normal number."""

    quoted = '"a schema%.a ""table"" of 100% ] -- order"'

    def make(self) -> SqlserverSink:
        url = "sqlserver://penstock:secret@localhost/shop?ssl_mode=disabled"
        return SqlserverSink(url=url, connect=partial(tsql.connect, self.directory), **self.filling(TABLE))

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [{name: None if _is_no_number(value) else value for name, value in row.items()} for row in make_rows(ids)]

    def read_back(self) -> Iterable[Row]:
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'a schema%'").fetchone():
                return []
            rows = connection.execute(f"SELECT * FROM {self.quoted}").fetchall()
        return [{name: restored(row[name]) for name in row.keys()} for row in rows]  # noqa: SIM118 - a row has no items

    def execute(self, statement: str) -> int:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            return connection.execute(statement).rowcount

    @property
    def path(self) -> Path:
        return self.directory / "shop.db"


def _is_no_number(value: object) -> bool:
    return isinstance(value, float) and (not math.isfinite(value) or 0 < abs(value) < 1e-300)


class SpooledRig(Spooled, SqlserverRig):
    pass


class TruncatedSpoolRig(TruncatedSpool, SqlserverRig):
    pass


class ForgottenSpoolRig(ForgottenSpool, SqlserverRig):
    pass


class DeleteRig(Deleting, SqlserverRig):
    pass


class UpsertRig(Upserting, SqlserverRig):
    pass


class NewestRig(Newest, SqlserverRig):
    pass


class InsertIfAbsentRig(InsertingIfAbsent, SqlserverRig):
    pass


class ReplaceRig(Replacing, SqlserverRig):
    pass


@pytest.fixture(autouse=True)
def nothing_out_of_order(tmp_path):
    """No session in any process broke the order."""
    yield
    assert [path.read_text() for path in tmp_path.glob("**/*.violations")] == []


class TestSqlserver(DialectContract, IdentityContract):
    @pytest.fixture(params=[SqlserverRig, SpooledRig, ReplaceRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_below(request.param, tmp_path)


class TestSqlserverByKey(DialectContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[UpsertRig, DeleteRig, InsertIfAbsentRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_below(request.param, tmp_path)


class TestSqlserverNewest(PublishContract, VerifyContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture
    def rig(self, tmp_path):
        return NewestRig(tmp_path)


class TestSqlserverBesideDriver(VerifyBesideDriverContract):
    @pytest.fixture(params=[SpooledRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_below(request.param, tmp_path)


class TestSqlserverStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledRig, TruncatedSpoolRig, ForgottenSpoolRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_below(request.param, tmp_path)


class TestSqlserverCrashes(CrashContract):
    fault_parts = ("sqlserver", "spool")

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_below(SpooledRig, tmp_path)


class TestSqlserverUpsertCrashes(CrashContract):
    fault_parts = ("sqlserver",)

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_below(request.param, tmp_path)
