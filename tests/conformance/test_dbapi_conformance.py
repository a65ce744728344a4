"""The dbapi sink passes the suite over four drivers, on PostgreSQL, MariaDB and SQLite files."""

import math
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import timezone
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest
from tests.conformance.beside_driver import looks_of
from tests.conformance.table_rig import DialectContract, InsertingIfAbsent, Spooled, TableRig, TruncatedSpool, named
from tests.servers.fixtures import server, unique
from tests.unit.table_target import spark_schema

from penstock.sink.dbapi.sink import DbapiSink
from penstock.testing.conformance import (
    CrashContract,
    IdentityContract,
    Row,
    StagingLossContract,
    VerifyBesideDriverContract,
    make_rows,
)

TABLE = 'a "table" of 100% :x ? -- `order`'


class DriverRig(TableRig):
    """One driver; `kept`: a row as its database has it."""

    driver: str
    columns: Mapping[str, str] = {}

    @property
    def arguments(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def make(self) -> DbapiSink:
        given = {"driver": self.driver, "connect": self.arguments, "columns": self.columns, "longest": 10_000}
        return DbapiSink(**given, **self.filling(TABLE))


class FileRig(DriverRig):
    """SQLite keeps numbers, texts and bytes, of what drivers can carry."""

    quoted = '"a ""table"" of 100% :x ? -- `order`"'
    schema = spark_schema(id="long", place="string", name="string", number="long", amount="double", flag="boolean", raw="binary")
    swapped_into = "amount"

    def rows(self, ids: Iterable[int]) -> list[Row]:
        names = ("id", "place", "name", "number", "amount", "flag", "raw")
        rows = [{name: row[name] for name in names} for row in make_rows(ids)]
        return [
            {**row, "amount": None if row["amount"] is not None and math.isnan(row["amount"]) else row["amount"]} for row in rows
        ]

    @property
    def path(self) -> Path:
        return self.directory / "data base.db"

    def read_back(self) -> list[Row]:
        if not self.path.exists():
            return []
        with closing(self.connected()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [TABLE])
            if not cursor.fetchall():
                return []
            cursor.execute(f"SELECT * FROM {self.quoted}")
            rows = [dict(zip((told[0] for told in cursor.description), row, strict=True)) for row in cursor.fetchall()]
        return [{**row, "flag": None if row["flag"] is None else row["flag"] == 1} for row in rows]

    def execute(self, statement: str) -> int:
        with closing(self.connected()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(statement)
            connection.commit()
            cursor.execute("SELECT changes()")
            return int(cursor.fetchall()[0][0])

    def connected(self) -> Any:
        """By the same driver: a second copy of SQLite in one process breaks the locks of the first (sqlite.org/howtocorrupt)."""
        connection = import_module(self.driver).connect(**self.arguments)
        with closing(connection.cursor()) as cursor:
            cursor.execute("PRAGMA busy_timeout = 30000")
            cursor.fetchall()
        return connection


class SqliteRig(FileRig):
    driver = "sqlite3"

    @property
    def arguments(self):
        return {"database": str(self.path), "timeout": 30, "check_same_thread": False}


class AdbcRig(FileRig):
    driver = "adbc_driver_sqlite.dbapi"

    @property
    def arguments(self):
        return {"uri": str(self.path)}


class PostgresRig(DriverRig):
    quoted = '"a ""table"" of 100% :x ? -- `order`"'
    driver = "psycopg"
    columns: Mapping[str, str] = {"raw": "BYTEA", "seen": "TIMESTAMPTZ"}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.url = server("postgres").database(unique("dbapi"))

    @property
    def arguments(self):
        return {"conninfo": self.url, "options": "-c timezone=UTC -c datestyle=ISO"}

    def rows(self, ids: Iterable[int]) -> list[Row]:
        """PostgreSQL has no NUL in texts."""
        return [{**row, "name": row["name"] and row["name"].replace("\0", "0")} for row in make_rows(ids)]

    def read_back(self) -> list[Row]:
        with psycopg.connect(self.url, row_factory=psycopg.rows.dict_row, options="-c timezone=UTC") as connection:
            if not connection.execute("SELECT 1 FROM pg_tables WHERE tablename = %s", [TABLE]).fetchone():
                return []
            return list(connection.execute(f"SELECT * FROM {self.quoted}").fetchall())

    def execute(self, statement: str) -> int:
        with psycopg.connect(self.url) as connection:
            return connection.execute(statement).rowcount


class MysqlRig(DriverRig):
    """MySQL has no NaN and no infinities."""

    quoted = '`a "table" of 100% :x ? -- ``order```'
    newest = f"(SELECT * FROM (SELECT max(id) FROM {quoted}) AS last)"
    driver = "pymysql"
    columns: Mapping[str, str] = {"place": "VARCHAR(100)", "seen": "DATETIME(6)", "raw": "LONGBLOB"}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.url = server("mysql").database(unique("dbapi"))

    @property
    def arguments(self):
        parts = urlsplit(self.url)
        return {
            "host": parts.hostname,
            "port": parts.port,
            "user": parts.username,
            "password": unquote(parts.password or ""),
            "database": parts.path[1:],
            "charset": "utf8mb4",
        }

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [{name: None if _has_no_number(value) else value for name, value in row.items()} for row in make_rows(ids)]

    def read_back(self) -> list[Row]:
        with (
            pymysql.connect(**self.arguments, cursorclass=pymysql.cursors.DictCursor) as connection,
            connection.cursor() as cursor,
        ):
            if not cursor.execute("SELECT 1 FROM information_schema.TABLES WHERE TABLE_NAME = %s", (TABLE,)):
                return []
            cursor.execute(f"SELECT * FROM {self.quoted}")
            return [_of_mysql(row) for row in cursor.fetchall()]

    def execute(self, statement: str) -> int:
        with pymysql.connect(**self.arguments, autocommit=True) as connection, connection.cursor() as cursor:
            return int(cursor.execute(statement))


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _has_no_number(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _of_mysql(row):
    flag, seen = row["flag"], row["seen"]
    return {**row, "flag": None if flag is None else flag == 1, "seen": seen and seen.replace(tzinfo=timezone.utc)}


class SpooledSqliteRig(Spooled, SqliteRig):
    pass


class TruncatedSqliteRig(TruncatedSpool, SqliteRig):
    pass


class AbsentMysqlRig(InsertingIfAbsent, MysqlRig):
    pass


def rig_beside(rig, directory: Path):
    (directory / "rig").mkdir()
    return rig(directory / "rig")


class TestDbapi(DialectContract, IdentityContract):
    @pytest.fixture(params=[AdbcRig, PostgresRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_beside(request.param, tmp_path)


class TestDbapiByKey(DialectContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_beside(AbsentMysqlRig, tmp_path)


class TestDbapiBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("dbapi", fewer=25), 10  # of some milliseconds each

    @pytest.fixture(params=[SqliteRig, PostgresRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_beside(request.param, tmp_path)


class TestDbapiStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledSqliteRig, TruncatedSqliteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_beside(request.param, tmp_path)


class TestDbapiCrashes(CrashContract):
    """On MariaDB; tests/crash/test_fault_points.py has PostgreSQL."""

    fault_parts = ("dbapi",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_beside(AbsentMysqlRig, tmp_path)
