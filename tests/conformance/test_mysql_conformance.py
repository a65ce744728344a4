"""The mysql sink passes the suite on a real server: inline, from spool files, and with every way of writing."""

import math
import os
import shutil
from collections.abc import Iterable, Sequence
from datetime import timezone
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pymysql
import pytest
from tests.servers.fixtures import server, unique

from penstock.model import SinkName
from penstock.sink.mysql.sink import MysqlSink
from penstock.testing.conformance import CrashContract, Row, SinkContract, SinkRig, StagingLossContract, make_rows

TABLE = 'a `table` of 100% -- "order"'
QUOTED = '`a ``table`` of 100% -- "order"`'


class MysqlRig(SinkRig):
    """The plainest one: append, small pieces inline. MySQL has no NaN and no infinities."""

    write = "append"
    key: tuple[str, ...] = ()
    inline_limit_bytes = 100_000

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.url = url

    def make(self) -> MysqlSink:
        return MysqlSink(
            name=SinkName("db"),
            url=self.url,
            table=TABLE,
            spool=str(self.directory / "spool"),
            write=self.write,
            key=self.key,
            inline_limit_bytes=self.inline_limit_bytes,
        )

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [{name: None if has_no_number(value) else value for name, value in row.items()} for row in make_rows(ids)]

    def read_back(self) -> Iterable[Row]:
        from pymysql.cursors import DictCursor

        with connected(self.url) as connection, connection.cursor(DictCursor) as cursor:
            if not cursor.execute("SELECT 1 FROM information_schema.TABLES WHERE TABLE_NAME = %s", (TABLE,)):
                return []
            cursor.execute(f"SELECT * FROM {QUOTED}")
            return [as_written(row) for row in cursor.fetchall()]

    def leftovers(self) -> Sequence[str]:
        return [str(path) for path in self.directory.glob("spool/**/*") if path.is_file() and path.suffix != ".id"]

    def damage(self, kind: str) -> None:
        last = "id = (SELECT * FROM (SELECT max(id) FROM " + QUOTED + ") AS last)"
        statement = {
            "lost": f"DELETE FROM {QUOTED} WHERE {last}",
            "doubled": f"INSERT INTO {QUOTED} SELECT * FROM {QUOTED} WHERE {last}",
            "changed": f"UPDATE {QUOTED} SET name = 'other' WHERE {last}",
            "foreign": f"INSERT INTO {QUOTED} (id, place) VALUES (-1, 'foreign')",
        }[kind]
        with connected(self.url) as connection, connection.cursor() as cursor:
            assert cursor.execute(statement) == 1


class SpooledRig(MysqlRig):
    inline_limit_bytes = 0

    def lose_staging(self) -> None:
        for path in self.leftovers():
            Path(path).unlink()


class TruncatedSpoolRig(SpooledRig):
    def lose_staging(self) -> None:
        for path in self.leftovers():
            os.truncate(path, 1000)


class ForgottenSpoolRig(SpooledRig):
    def lose_staging(self) -> None:
        shutil.rmtree(self.directory / "spool")


class UpsertRig(SpooledRig):
    write = "upsert"
    key = ("id", "place")


class InsertIfAbsentRig(UpsertRig):
    write = "insert_if_absent"


class ReplaceRig(SpooledRig):
    write = "replace"

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return batches[-1] if batches else []


def named(rig):
    return rig.__name__


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


class TestMysql(SinkContract):
    @pytest.fixture(params=[MysqlRig, SpooledRig, ReplaceRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlByKey(SinkContract):
    damages = ("lost", "changed", "foreign")

    @pytest.fixture(params=[UpsertRig, InsertIfAbsentRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledRig, TruncatedSpoolRig, ForgottenSpoolRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestMysqlCrashes(CrashContract):
    """By key, which takes the most steps; tests/unit/test_mysql_publish.py has every fault of the others."""

    fault_parts = ("mysql",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(UpsertRig, tmp_path)
