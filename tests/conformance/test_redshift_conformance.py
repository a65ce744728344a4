"""The redshift sink passes the suite by Redshift's own driver, on a PostgreSQL that refuses what Redshift lacks."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.conformance.beside_driver import looks_of
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
)
from tests.servers.fixtures import server, unique

from penstock.sink.redshift.sink import RedshiftSink
from penstock.testing.conformance import (
    CrashContract,
    IdentityContract,
    Row,
    StagingLossContract,
    VerifyBesideDriverContract,
    make_rows,
)

SCHEMA, TABLE = "a schema%", 'a "table" of 100% -- order'
QUOTED = '"a schema%"."a ""table"" of 100% -- order"'


class RedshiftRig(TableRig):
    """Redshift has no NUL in texts; the column of bytes still has some. `direct` goes past the proxy."""

    quoted = QUOTED

    def __init__(self, directory: Path, url: str, direct: str) -> None:
        super().__init__(directory)
        self.url, self.direct = url, direct

    def make(self) -> RedshiftSink:
        return RedshiftSink(url=self.url, **self.filling(QUOTED))

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [
            {name: value.replace("\0", "␀") if isinstance(value, str) else value for name, value in row.items()}
            for row in make_rows(ids)
        ]

    def read_back(self) -> Iterable[Row]:
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self.direct, row_factory=dict_row, autocommit=True, options="-c timezone=UTC") as connection:
            if not connection.execute("SELECT 1 FROM pg_tables WHERE tablename = %s", (TABLE,)).fetchone():
                return []
            return connection.execute(
                f"SELECT id, place, name, number, amount, price, day, seen, flag, raw::bytea AS raw FROM {QUOTED}"
            ).fetchall()

    def execute(self, statement: str) -> int:
        import psycopg

        with psycopg.connect(self.direct) as connection:
            return connection.execute(statement).rowcount


class SpooledRig(Spooled, RedshiftRig):
    pass


class TruncatedSpoolRig(TruncatedSpool, RedshiftRig):
    pass


class ForgottenSpoolRig(ForgottenSpool, RedshiftRig):
    pass


class DeleteRig(Deleting, RedshiftRig):
    pass


class UpsertRig(Upserting, RedshiftRig):
    pass


class NewestRig(Newest, RedshiftRig):
    pass


class InsertIfAbsentRig(InsertingIfAbsent, RedshiftRig):
    pass


class ReplaceRig(Replacing, RedshiftRig):
    pass


@pytest.fixture(autouse=True)
def nothing_refused():
    """No statement asked for what Redshift lacks."""
    running = server("redshift")
    running.refused.clear()
    yield
    assert running.refused == []


def rig_on_server(rig, directory):
    import psycopg

    running, name = server("redshift"), unique("conformance")
    url = running.database(name)
    with psycopg.connect(running.direct(name)) as connection:
        connection.execute(f'CREATE SCHEMA "{SCHEMA}"')
    (directory / "rig").mkdir()
    return rig(directory / "rig", url, running.direct(name))


class TestRedshift(DialectContract, IdentityContract):
    @pytest.fixture(params=[SpooledRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestRedshiftWays(DialectContract):
    """What stages, sweeps and keeps ledgers apart is the same for all ways to write."""

    @pytest.fixture(params=[RedshiftRig, ReplaceRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestRedshiftByKey(DialectContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestRedshiftIfAbsent(DialectContract):
    damages = ("lost", "changed", "foreign", "swapped")

    @pytest.fixture(params=[InsertIfAbsentRig, NewestRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestRedshiftBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("redshift", fewer=25), 10  # of some milliseconds each

    @pytest.fixture(params=[SpooledRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestRedshiftStagingLost(StagingLossContract):
    @pytest.fixture(params=[SpooledRig, TruncatedSpoolRig, ForgottenSpoolRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestRedshiftCrashes(CrashContract):
    fault_parts = ("redshift",)

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(SpooledRig, tmp_path)


class TestRedshiftUpsertCrashes(CrashContract):
    fault_parts = ("redshift",)

    @pytest.fixture(params=[UpsertRig, DeleteRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)
