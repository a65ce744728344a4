"""Sinks into many tables pass the suite: a database in one transaction, Delta and Iceberg table by table."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from tests.conformance.table_rig import DialectContract, Spooled, TableRig, named, rig_below
from tests.conformance.test_mysql_conformance import as_written, connected, has_no_number
from tests.servers.fixtures import server, unique

from penstock.core.model import AccountName, SinkName
from penstock.core.table_names import TableNames
from penstock.ledger.sqlite import SqliteLedger
from penstock.sink.delta.log import delta_log
from penstock.sink.lake.sink import LakeSink
from penstock.sink.many.database import many_tables
from penstock.sink.many.lake import ManyLakeTables
from penstock.sink.many.shares import child_name
from penstock.sink.mysql.sink import MysqlSink
from penstock.sink.parquet import directory_account
from penstock.sink.postgres.sink import PostgresSink
from penstock.sink.sqlite import SqliteSink
from penstock.sink.sqlite.storage import restored
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import PIPELINE, CrashContract, IdentityContract, Row, SinkContract, SinkRig, make_rows
from penstock.testing.conformance.publishing import PublishContract, RaceContract
from penstock.testing.conformance.verifying import VerifyContract

EVEN, ODD = AccountName("even_t"), AccountName("odd_t")
"""Of an even id and of an odd one."""
NAMES = TableNames(template="{x}_t", pattern=".*")


class ManyRig(TableRig):
    """Two tables. Damage is done to that of odd ids, which has the row that `swapped` is about."""

    quoted = ODD
    kind: type[Any]

    def place(self) -> dict[str, Any]:
        """What names the database."""
        raise NotImplementedError

    def make(self) -> Any:
        given = {**self.filling("t"), **self.place()}
        sink: Any = many_tables(self.kind, NAMES, prefix="", unrouted="fail", puts_invalid_aside=False, **given)
        sink.use_tables([ODD, EVEN])
        return sink


class ManySqliteRig(ManyRig):
    kind = SqliteSink

    @property
    def database(self) -> Path:
        return self.directory / "data.db"

    def place(self) -> dict[str, Any]:
        return {"path": self.database}

    def read_back(self) -> Iterable[Row]:
        """Both tables in one snapshot."""
        if not self.database.exists():
            return []
        connection, schema = sqlite3.connect(self.database, isolation_level=None), arrow_schema(self.schema)
        try:
            connection.execute("BEGIN")
            there = connection.execute("SELECT name FROM sqlite_master WHERE name IN (?, ?)", (EVEN, ODD)).fetchall()
            names = ", ".join(schema.names)
            rows = [row for (table,) in there for row in connection.execute(f"SELECT {names} FROM {table}").fetchall()]
        finally:
            connection.close()
        values = zip(schema, zip(*rows, strict=True), strict=False)
        columns = [restored(found, field.type).to_pylist() for field, found in values]
        return [dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def execute(self, statement: str) -> int:
        with sqlite3.connect(self.database) as connection:
            rows = connection.execute(statement).rowcount
        connection.close()
        return rows


class ManySpooledRig(Spooled, ManySqliteRig):
    pass


class ManyRidingRig(ManySpooledRig):
    """The ledger is in the sink's own database, so that every decision takes the rows along."""

    def ledger(self) -> SqliteLedger:
        return SqliteLedger(self.database, pipeline=PIPELINE)


class TestManySqlite(SinkContract, IdentityContract):
    @pytest.fixture(params=[ManySqliteRig, ManySpooledRig, ManyRidingRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestManySqliteKilled(CrashContract):
    fault_parts = ("sqlite",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_below(ManySpooledRig, tmp_path)


class ManyPostgresRig(ManyRig):
    """PostgreSQL has no NUL in texts."""

    kind = PostgresSink

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.url = url

    def place(self) -> dict[str, Any]:
        return {"url": self.url}

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [
            {name: value.replace("\0", "␀") if isinstance(value, str) else value for name, value in row.items()}
            for row in make_rows(ids)
        ]

    def read_back(self) -> Iterable[Row]:
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self.url, row_factory=dict_row, options="-c timezone=UTC") as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            there = connection.execute("SELECT tablename FROM pg_tables WHERE tablename IN ('even_t', 'odd_t')").fetchall()
            return [row for found in there for row in connection.execute(f"SELECT * FROM {found['tablename']}").fetchall()]

    def execute(self, statement: str) -> int:
        import psycopg

        with psycopg.connect(self.url) as connection:
            return connection.execute(statement).rowcount  # type: ignore[arg-type]


class TestManyPostgres(DialectContract):
    @pytest.fixture
    def rig(self, tmp_path):
        return ManyPostgresRig(tmp_path, server("postgres").database(unique("many")))


class ManyMysqlRig(ManyRig):
    """MySQL has no NaN and no infinities, and changes no table that a subquery reads, unless that has a table of its own."""

    kind = MysqlSink
    newest = f"(SELECT * FROM (SELECT max(id) FROM {ODD}) AS last)"

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.url = url

    def place(self) -> dict[str, Any]:
        return {"url": self.url}

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [{name: None if has_no_number(value) else value for name, value in row.items()} for row in make_rows(ids)]

    def read_back(self) -> Iterable[Row]:
        from pymysql.cursors import DictCursor

        with connected(self.url) as connection, connection.cursor(DictCursor) as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cursor.execute("SHOW TABLES LIKE '%\\_t'")
            found = list[Row]()
            for one in [next(iter(row.values())) for row in cursor.fetchall()]:
                cursor.execute(f"SELECT * FROM {one}")
                found += map(as_written, cursor.fetchall())
            return found

    def execute(self, statement: str) -> int:
        with connected(self.url) as connection, connection.cursor() as cursor:
            return int(cursor.execute(statement))


class TestManyMysql(DialectContract):
    @pytest.fixture
    def rig(self, tmp_path):
        return ManyMysqlRig(tmp_path, server("mysql").database(unique("many")))


class ManyDeltaRig(SinkRig):
    """A reader may see one table's rows of a batch before the other's."""

    whole_batches = False

    def make(self) -> ManyLakeTables:
        def one(table: AccountName) -> LakeSink:
            account = directory_account(self.root(table))
            name = child_name(SinkName("lake"), table)
            return LakeSink(name=name, pipeline=PIPELINE, account=account, log=delta_log(account), inline_limit_bytes=0)

        sink = ManyLakeTables(name=SinkName("lake"), names=NAMES, make=one, spool=None)
        sink.use_tables([ODD, EVEN])
        return sink

    def root(self, table: str) -> Path:
        return self.directory / "lake" / table

    def unit_of(self, row: Row) -> object:
        return row["id"] % 2

    def read_back(self) -> Iterator[Row]:
        for table in (EVEN, ODD):
            if DeltaTable.is_deltatable(str(self.root(table))):
                yield from pa.table(DeltaTable(str(self.root(table))).scan()).to_pylist()

    def damage(self, kind: str) -> None:
        assert kind == "lost"
        table = DeltaTable(str(self.root(ODD)))
        newest = pc.max(pa.table(table.scan())["id"]).as_py()
        assert table.delete(f"id = {newest}")["num_deleted_rows"] == 1

    def leftovers(self) -> Sequence[str]:
        staging = self.directory / "lake" / ".penstock-staging"
        return [str(path) for path in staging.rglob("*") if path.is_file() and path.name.endswith(".staged")]


class TestManyDelta(PublishContract, RaceContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> ManyDeltaRig:
        return ManyDeltaRig(tmp_path)


class TestManyDeltaVerified(VerifyContract):
    damages = ("lost",)

    @pytest.fixture
    def rig(self, tmp_path: Path) -> ManyDeltaRig:
        return ManyDeltaRig(tmp_path)


class TestManyDeltaKilled(CrashContract):
    """In between the tables of a batch, too."""

    fault_parts = ("delta", "laketables")

    @pytest.fixture
    def rig(self, tmp_path: Path) -> ManyDeltaRig:
        (tmp_path / "rig").mkdir()
        return ManyDeltaRig(tmp_path / "rig")
