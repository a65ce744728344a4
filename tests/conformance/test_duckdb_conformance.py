"""The duckdb sink passes the suite: inline, from spool files, and with every way of writing."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed
from tests.conformance.beside_driver import looks_of
from tests.conformance.table_rig import (
    DamagedSpool,
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

from penstock.sink.duckdb.database import lock_of
from penstock.sink.duckdb.sink import DuckdbSink
from penstock.sink.duckdb.storage import restored
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import (
    CrashContract,
    IdentityContract,
    Row,
    StagingLossContract,
    VerifyBesideDriverContract,
)

TABLE = 'a "table" of -- order'
QUOTED = '"a ""table"" of -- order"'


class DuckdbRig(TableRig):
    """Small pieces inline."""

    quoted = QUOTED

    def make(self) -> DuckdbSink:
        return DuckdbSink(path=self.database, **self.filling(TABLE))

    @property
    def database(self) -> Path:
        return self.directory / "data base%20?.duckdb"

    def read_back(self) -> Iterable[Row]:
        if not self.database.exists():
            return []
        with self.opened() as connection:
            if not connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [TABLE]).fetchone():
                return []
            schema = arrow_schema(self.schema)
            names = ", ".join(f'"{name}"' for name in schema.names)
            found = connection.execute(f"SELECT {names} FROM {QUOTED}").to_arrow_table().combine_chunks()
        columns = [restored(_one(column), field.type).to_pylist() for field, column in zip(schema, found.columns, strict=True)]
        return [dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True)]

    @contextmanager
    def opened(self) -> Iterator["duckdb.DuckDBPyConnection"]:
        """By another program's part of this process, which goes on reading while the sink writes."""
        with lock_of(str(self.database)):
            connection = duckdb.connect(self.database)
        try:
            yield connection
        finally:
            with lock_of(str(self.database)):
                connection.close()

    def execute(self, statement: str) -> int:
        with _connected(self.database) as connection:
            row = connection.execute(statement).fetchone()
        assert row is not None
        return int(row[0])


@retry(retry=retry_if_exception_type(duckdb.IOException), stop=stop_after_delay(60), wait=wait_fixed(0.05), reraise=True)
def _connected(database: Path) -> "duckdb.DuckDBPyConnection":
    """Once no other process has the file: a driver that runs beside the test takes it for each batch."""
    return duckdb.connect(database)


def _one(column: "pa.ChunkedArray") -> "pa.Array":
    return pa.concat_arrays(column.chunks) if column.chunks else pa.nulls(0, column.type)


class SpooledRig(Spooled, DuckdbRig):
    pass


class DamagedSpoolRig(DamagedSpool, DuckdbRig):
    pass


class TruncatedSpoolRig(TruncatedSpool, DuckdbRig):
    pass


class ForgottenSpoolRig(ForgottenSpool, DuckdbRig):
    pass


class DeleteRig(Deleting, DuckdbRig):
    pass


class UpsertRig(Upserting, DuckdbRig):
    key = ("id", "PLACE")


class NewestRig(Newest, DuckdbRig):
    key = ("id", "PLACE")


class InsertIfAbsentRig(InsertingIfAbsent, DuckdbRig):
    key = ("id", "PLACE")


class ReplaceRig(Replacing, DuckdbRig):
    pass


class TestDuckdb(DialectContract, IdentityContract):
    @pytest.fixture(params=[SpooledRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestDuckdbWays(DialectContract):
    """What stages, sweeps and keeps ledgers apart is the same for all ways to write."""

    @pytest.fixture(params=[DuckdbRig, ReplaceRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestDuckdbByKey(DialectContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestDuckdbIfAbsent(DialectContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[InsertIfAbsentRig, NewestRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestDuckdbBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("duckdb", fewer=25), 10  # of some milliseconds each

    @pytest.fixture(params=[SpooledRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestDuckdbStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledRig, DamagedSpoolRig, TruncatedSpoolRig, ForgottenSpoolRig], ids=named)
    def rig(self, request, tmp_path):
        return request.param(tmp_path)


class TestDuckdbCrashes(CrashContract):
    fault_parts = ("duckdb", "spool")

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_below(SpooledRig, tmp_path)


class TestDuckdbUpsertCrashes(CrashContract):
    fault_parts = ("duckdb",)

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_below(request.param, tmp_path)
