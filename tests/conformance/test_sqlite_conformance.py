"""The sqlite sink passes the suite: inline, from spool files, in the ledger's transaction, and with every way of writing."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.conformance.table_rig import (
    DamagedSpool,
    Deleting,
    ForgottenSpool,
    InsertingIfAbsent,
    Newest,
    Replacing,
    Spooled,
    TableRig,
    TruncatedSpool,
    Upserting,
    Versions,
    named,
    rig_below,
)

from penstock.ledger.sqlite import SqliteLedger
from penstock.sink.sqlite import SqliteSink
from penstock.sink.sqlite.storage import restored
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import (
    PIPELINE,
    CrashContract,
    IdentityContract,
    Row,
    SinkContract,
    StagingLossContract,
    VerifyBesideDriverContract,
)
from penstock.testing.conformance.publishing import PublishContract
from penstock.testing.conformance.verifying import VerifyContract

TABLE = 'a "table" of -- order'
QUOTED = '"a ""table"" of -- order"'


class SqliteRig(TableRig):
    """A ledger in another file."""

    quoted = QUOTED

    def make(self) -> SqliteSink:
        return SqliteSink(path=self.database, **self.filling(TABLE))

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
            rows = connection.execute(f"SELECT {names} FROM {QUOTED}").fetchall()
        finally:
            connection.close()
        columns = [
            restored(values, field.type).to_pylist() for field, values in zip(schema, zip(*rows, strict=True), strict=False)
        ]
        return [dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def execute(self, statement: str) -> int:
        with sqlite3.connect(self.database) as connection:
            rows = connection.execute(statement).rowcount
        connection.close()
        return rows


class SpooledRig(Spooled, SqliteRig):
    pass


class DamagedSpoolRig(DamagedSpool, SqliteRig):
    pass


class TruncatedSpoolRig(TruncatedSpool, SqliteRig):
    pass


class ForgottenSpoolRig(ForgottenSpool, SqliteRig):
    pass


class UpsertRig(Upserting, SqliteRig):
    key = ("id", "PLACE")


class DeleteRig(Deleting, SqliteRig):
    key = ("id", "PLACE")


class NewestRig(Newest, SqliteRig):
    key = ("id", "PLACE")


class HistoryRig(Versions, SqliteRig):
    key = ("id", "PLACE")


class InsertIfAbsentRig(InsertingIfAbsent, SqliteRig):
    key = ("id", "PLACE")


class ReplaceRig(Replacing, SqliteRig):
    pass


class RidingRig(SpooledRig):
    """The ledger is in the sink's own database, so that every decision takes the rows along."""

    def ledger(self) -> SqliteLedger:
        return SqliteLedger(self.database, pipeline=PIPELINE)


class TestSqlite(SinkContract, IdentityContract):
    @pytest.fixture(params=[SqliteRig, SpooledRig, ReplaceRig, RidingRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestSqliteByKey(SinkContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[UpsertRig, DeleteRig, InsertIfAbsentRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestSqliteNewest(PublishContract, VerifyContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[NewestRig, HistoryRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestSqliteBesideDriver(VerifyBesideDriverContract):
    @pytest.fixture(params=[SpooledRig, UpsertRig, RidingRig], ids=named)
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

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_below(request.param, tmp_path)


class TestSqliteHistoryCrashes(CrashContract):
    fault_parts = ("sqlite", "compare")

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_below(HistoryRig, tmp_path)
