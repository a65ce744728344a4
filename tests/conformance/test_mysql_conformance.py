"""The mysql sink passes the suite on a real server: inline, from spool files, in the ledger's transaction, in every way."""

import math
from collections.abc import Iterable
from datetime import timezone
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pymysql
import pytest
from tests.conformance.table_rig import (
    Deleting,
    DialectContract,
    ForgottenSpool,
    InsertingIfAbsent,
    Merging,
    Newest,
    Replacing,
    Spooled,
    TableRig,
    TruncatedSpool,
    Upserting,
    named,
)
from tests.servers.fixtures import server, unique

from penstock.ledger.mysql import MysqlLedger
from penstock.sink.mysql.sink import MysqlSink
from penstock.testing.conformance import (
    PIPELINE,
    CrashContract,
    IdentityContract,
    Row,
    StagingLossContract,
    VerifyBesideDriverContract,
    make_rows,
)

TABLE = 'a `table` of 100% -- "order"'
QUOTED = '`a ``table`` of 100% -- "order"`'


class MysqlRig(TableRig):
    """MySQL has no NaN and no infinities, and changes no table that a subquery reads, unless that has a table of its own."""

    quoted = QUOTED
    newest = f"(SELECT * FROM (SELECT max(id) FROM {QUOTED}) AS last)"

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.url = url

    def make(self) -> MysqlSink:
        return MysqlSink(url=self.url, **self.filling(TABLE))

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [{name: None if has_no_number(value) else value for name, value in row.items()} for row in make_rows(ids)]

    def read_back(self) -> Iterable[Row]:
        from pymysql.cursors import DictCursor

        with connected(self.url) as connection, connection.cursor(DictCursor) as cursor:
            if not cursor.execute("SELECT 1 FROM information_schema.TABLES WHERE TABLE_NAME = %s", (TABLE,)):
                return []
            cursor.execute(f"SELECT * FROM {QUOTED}")
            return [as_written(row) for row in cursor.fetchall()]

    def execute(self, statement: str) -> int:
        with connected(self.url) as connection, connection.cursor() as cursor:
            return int(cursor.execute(statement))


class SpooledRig(Spooled, MysqlRig):
    pass


class TruncatedSpoolRig(TruncatedSpool, MysqlRig):
    pass


class ForgottenSpoolRig(ForgottenSpool, MysqlRig):
    pass


class DeleteRig(Deleting, MysqlRig):
    pass


class UpsertRig(Upserting, MysqlRig):
    pass


class NewestRig(Newest, MysqlRig):
    pass


class InsertIfAbsentRig(InsertingIfAbsent, MysqlRig):
    pass


class ReplaceRig(Replacing, MysqlRig):
    pass


class MergeRig(Merging, MysqlRig):
    pass


class RidingRig(SpooledRig):
    """The ledger is in the sink's own database, so that every decision takes the rows along."""

    def ledger(self) -> MysqlLedger:
        return MysqlLedger(self.url, pipeline=PIPELINE)


def as_written(row):
    """MySQL has no type of its own for booleans, and none for moments that reaches beyond 2038: they are told in UTC."""
    flag, seen = row["flag"], row["seen"]
    return {**row, "flag": None if flag is None else flag == 1, "seen": seen and seen.replace(tzinfo=timezone.utc)}


def has_no_number(value):
    return isinstance(value, float) and not math.isfinite(value)


def connected(url):
    """Another client than the product's settings make."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=unquote(parts.password),
        database=unquote(parts.path[1:]),
        ssl_disabled=True,
        autocommit=True,
        init_command="SET time_zone = '+00:00'",
    )


def rig_on_server(rig, directory):
    url = server("mysql").database(unique("conformance % "))
    (directory / "rig").mkdir()
    return rig(directory / "rig", url.replace(" % ", "%20%25%20"))


class TestMysql(DialectContract, IdentityContract):
    @pytest.fixture(params=[SpooledRig, RidingRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlWays(DialectContract):
    """What stages, sweeps and keeps ledgers apart is the same for all ways to write."""

    @pytest.fixture(params=[MysqlRig, ReplaceRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlByKey(DialectContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlIfAbsent(DialectContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[InsertIfAbsentRig, NewestRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlMerge(DialectContract):
    """Which rows are there only the user's SQL knows."""

    damages = ("decided",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(MergeRig, tmp_path)


class TestMysqlBesideDriver(VerifyBesideDriverContract):
    @pytest.fixture(params=[UpsertRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledRig, TruncatedSpoolRig, ForgottenSpoolRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlCrashes(CrashContract):
    """By key, which takes the most steps; tests/live/test_mysql_publish.py has every fault of the others."""

    fault_parts = ("mysql",)

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlRidingCrashes(CrashContract):
    fault_parts = ("mysql",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(RidingRig, tmp_path)
