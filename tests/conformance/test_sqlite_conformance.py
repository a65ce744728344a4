"""The sqlite sink passes the suite: inline, from spool files, in the ledger's transaction, and with every way of writing."""

import os
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from penstock.ledger.sqlite import SqliteLedger
from penstock.model import SinkName
from penstock.sink.sqlite import SqliteSink
from penstock.sink.sqlite.storage import restored
from penstock.sparkschema import arrow_schema
from penstock.testing.conformance import PIPELINE, CrashContract, Row, SinkContract, SinkRig, StagingLossContract

TABLE = 'a "table" of -- order'


class SqliteRig(SinkRig):
    """The plainest one: append, small pieces inline, a ledger in another file."""

    write = "append"
    key: tuple[str, ...] = ()
    inline_limit_bytes = 100_000

    def make(self) -> SqliteSink:
        return SqliteSink(
            name=SinkName("db"),
            path=self.database,
            table=TABLE,
            spool=str(self.directory / "spool"),
            write=self.write,
            key=self.key,
            inline_limit_bytes=self.inline_limit_bytes,
        )

    @property
    def database(self) -> Path:
        return self.directory / "data base%20?.db"

    def read_back(self) -> Iterable[Row]:
        if not self.database.exists():
            return []
        connection = sqlite3.connect(self.database, isolation_level=None)
        try:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (TABLE,)).fetchone():
                return []
            schema = arrow_schema(self.schema)
            names = ", ".join(f'"{name}"' for name in schema.names)
            rows = connection.execute(f'SELECT {names} FROM "{TABLE.replace(chr(34), chr(34) * 2)}"').fetchall()
        finally:
            connection.close()
        columns = [
            restored(values, field.type).to_pylist() for field, values in zip(schema, zip(*rows, strict=True), strict=False)
        ]
        return [dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def leftovers(self) -> Sequence[str]:
        return [str(path) for path in self.directory.glob("spool/**/*") if path.is_file() and path.suffix != ".id"]

    def damage(self, kind: str) -> None:
        table = f'"{TABLE.replace(chr(34), chr(34) * 2)}"'
        one = f"id = (SELECT max(id) FROM {table})"
        statement = {
            "lost": f"DELETE FROM {table} WHERE {one}",
            "doubled": f"INSERT INTO {table} SELECT * FROM {table} WHERE {one}",
            "changed": f"UPDATE {table} SET name = 'other' WHERE {one}",
            "foreign": f"INSERT INTO {table} (id, place) VALUES (-1, 'foreign')",
        }[kind]
        with sqlite3.connect(self.database) as connection:
            connection.execute(statement)
        connection.close()


class SpooledRig(SqliteRig):
    inline_limit_bytes = 0

    def lose_staging(self) -> None:
        for path in self.leftovers():
            Path(path).unlink()


class DamagedSpoolRig(SpooledRig):
    def lose_staging(self) -> None:
        for path in self.leftovers():
            data = bytearray(Path(path).read_bytes())
            data[len(data) // 2] ^= 1
            Path(path).write_bytes(data)


class TruncatedSpoolRig(SpooledRig):
    def lose_staging(self) -> None:
        for path in self.leftovers():
            os.truncate(path, 1000)


class ForgottenSpoolRig(SpooledRig):
    def lose_staging(self) -> None:
        shutil.rmtree(self.directory / "spool")


class UpsertRig(SpooledRig):
    write = "upsert"
    key = ("id", "PLACE")


class InsertIfAbsentRig(UpsertRig):
    write = "insert_if_absent"


class ReplaceRig(SpooledRig):
    write = "replace"

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return batches[-1] if batches else []


class RidingRig(SpooledRig):
    """The ledger is in the sink's own database, so that every decision takes the rows along."""

    def ledger(self) -> SqliteLedger:
        return SqliteLedger(self.database, pipeline=PIPELINE)


def named(rig):
    return rig.__name__


class TestSqlite(SinkContract):
    @pytest.fixture(params=[SqliteRig, SpooledRig, ReplaceRig, RidingRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestSqliteByKey(SinkContract):
    damages = ("lost", "changed", "foreign")

    @pytest.fixture(params=[UpsertRig, InsertIfAbsentRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestSqliteStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledRig, DamagedSpoolRig, TruncatedSpoolRig, ForgottenSpoolRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestSqliteCrashes(CrashContract):
    fault_parts = ("sqlite", "spool")

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_below(SpooledRig, tmp_path)


class TestSqliteRidingCrashes(CrashContract):
    fault_parts = ("sqlite", "spool")

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_below(RidingRig, tmp_path)


class TestSqliteUpsertCrashes(CrashContract):
    fault_parts = ("sqlite",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_below(UpsertRig, tmp_path)


def rig_below(rig, directory):
    (directory / "rig").mkdir()
    return rig(directory / "rig")
