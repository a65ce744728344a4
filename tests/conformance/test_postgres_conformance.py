"""The postgres sink passes the suite on a real server: inline, from spool files, in the ledger's transaction, in every way."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.conformance.beside_driver import looks_of
from tests.conformance.table_rig import (
    Deleting,
    ForgottenSpool,
    InsertingIfAbsent,
    Merging,
    Newest,
    Replacing,
    Spooled,
    TableRig,
    TruncatedSpool,
    Upserting,
    Versions,
    named,
)
from tests.servers.fixtures import server, unique

from penstock.ledger.postgres import PostgresLedger
from penstock.sink.postgres.sink import PostgresSink
from penstock.testing.conformance import (
    PIPELINE,
    CrashContract,
    IdentityContract,
    Row,
    SinkContract,
    StagingLossContract,
    VerifyBesideDriverContract,
    make_rows,
)
from penstock.testing.conformance.publishing import PublishContract, RaceContract
from penstock.testing.conformance.verifying import VerifyContract

SCHEMA, TABLE = "a schema%", 'a "table" of 100% -- order'
QUOTED = '"a schema%"."a ""table"" of 100% -- order"'


class PostgresRig(TableRig):
    """PostgreSQL has no NUL in texts; the column of bytes still has some."""

    quoted = QUOTED

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.url = url

    def make(self) -> PostgresSink:
        return PostgresSink(url=self.url, **self.filling(QUOTED))

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [
            {name: value.replace("\0", "␀") if isinstance(value, str) else value for name, value in row.items()}
            for row in make_rows(ids)
        ]

    def read_back(self) -> Iterable[Row]:
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self.url, row_factory=dict_row, autocommit=True, options="-c timezone=UTC") as connection:
            if not connection.execute("SELECT 1 FROM pg_tables WHERE tablename = %s", (TABLE,)).fetchone():
                return []
            return connection.execute(f"SELECT * FROM {QUOTED}").fetchall()

    def execute(self, statement: str) -> int:
        import psycopg

        with psycopg.connect(self.url) as connection:
            return connection.execute(statement).rowcount


class SpooledRig(Spooled, PostgresRig):
    pass


class TruncatedSpoolRig(TruncatedSpool, PostgresRig):
    pass


class ForgottenSpoolRig(ForgottenSpool, PostgresRig):
    pass


class UpsertRig(Upserting, PostgresRig):
    pass


class DeleteRig(Deleting, PostgresRig):
    pass


class NewestRig(Newest, PostgresRig):
    pass


class HistoryRig(Versions, PostgresRig):
    pass


class InsertIfAbsentRig(InsertingIfAbsent, PostgresRig):
    pass


class ReplaceRig(Replacing, PostgresRig):
    pass


class MergeRig(Merging, PostgresRig):
    marker = f'"{SCHEMA}".penstock_marker'


class RidingRig(SpooledRig):
    """The ledger is in the sink's own database, so that every decision takes the rows along."""

    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.url, pipeline=PIPELINE)


def rig_on_server(rig, directory):
    import psycopg

    url = server("postgres").database(unique("conformance"))
    with psycopg.connect(url) as connection:
        connection.execute(f'CREATE SCHEMA "{SCHEMA}"')
    (directory / "rig").mkdir()
    return rig(directory / "rig", url)


class TestPostgres(SinkContract, IdentityContract):
    @pytest.fixture(params=[PostgresRig, SpooledRig, ReplaceRig, RidingRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestPostgresByKey(SinkContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[UpsertRig, DeleteRig, InsertIfAbsentRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestPostgresMerge(SinkContract):
    """Which rows are there only the user's SQL knows."""

    damages = ("decided",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(MergeRig, tmp_path)


class TestPostgresNewest(PublishContract, RaceContract, VerifyContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[NewestRig, HistoryRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestPostgresBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("postgres", fewer=25), 10  # of some milliseconds each

    @pytest.fixture(params=[SpooledRig, RidingRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestPostgresStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledRig, TruncatedSpoolRig, ForgottenSpoolRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestPostgresCrashes(CrashContract):
    fault_parts = ("postgres", "spool")

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(SpooledRig, tmp_path)


class TestPostgresRidingCrashes(CrashContract):
    fault_parts = ("postgres",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(RidingRig, tmp_path)


class TestPostgresUpsertCrashes(CrashContract):
    fault_parts = ("postgres",)

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)
