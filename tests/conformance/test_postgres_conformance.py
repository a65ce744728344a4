"""The postgres sink passes the suite on a real server: inline, from spool files, in the ledger's transaction, in every way."""

import itertools
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from tests.servers.fixtures import server

from penstock.ledger.postgres import PostgresLedger
from penstock.model import SinkName
from penstock.sink.postgres.sink import PostgresSink
from penstock.testing.conformance import PIPELINE, CrashContract, Row, SinkContract, SinkRig, StagingLossContract, make_rows

SCHEMA, TABLE = "a schema%", 'a "table" of 100% -- order'
QUOTED = '"a schema%"."a ""table"" of 100% -- order"'
_numbers = itertools.count()


class PostgresRig(SinkRig):
    """The plainest one: append, small pieces inline. PostgreSQL has no NUL in texts; the column of bytes still has some."""

    write = "append"
    key: tuple[str, ...] = ()
    inline_limit_bytes = 100_000

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.url = url

    def make(self) -> PostgresSink:
        return PostgresSink(
            name=SinkName("db"),
            url=self.url,
            table=QUOTED,
            spool=str(self.directory / "spool"),
            write=self.write,
            key=self.key,
            inline_limit_bytes=self.inline_limit_bytes,
        )

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

    def leftovers(self) -> Sequence[str]:
        return [str(path) for path in self.directory.glob("spool/**/*") if path.is_file() and path.suffix != ".id"]

    def damage(self, kind: str) -> None:
        import psycopg

        one = f"id = (SELECT max(id) FROM {QUOTED})"
        statement = {
            "lost": f"DELETE FROM {QUOTED} WHERE {one}",
            "doubled": f"INSERT INTO {QUOTED} SELECT * FROM {QUOTED} WHERE {one}",
            "changed": f"UPDATE {QUOTED} SET name = 'other' WHERE {one}",
            "foreign": f"INSERT INTO {QUOTED} (id, place) VALUES (-1, 'foreign')",
        }[kind]
        with psycopg.connect(self.url) as connection:
            assert connection.execute(statement).rowcount == 1


class SpooledRig(PostgresRig):
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


class RidingRig(SpooledRig):
    """The ledger is in the sink's own database, so that every decision takes the rows along."""

    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.url, pipeline=PIPELINE)


def named(rig):
    return rig.__name__


def rig_on_server(rig, directory):
    import psycopg

    url = server("postgres").database(f"conformance{next(_numbers)}")
    with psycopg.connect(url) as connection:
        connection.execute(f'CREATE SCHEMA "{SCHEMA}"')
    (directory / "rig").mkdir()
    return rig(directory / "rig", url)


class TestPostgres(SinkContract):
    @pytest.fixture(params=[PostgresRig, SpooledRig, ReplaceRig, RidingRig], ids=named)
    def rig(self, request, tmp_path):
        return rig_on_server(request.param, tmp_path)


class TestPostgresByKey(SinkContract):
    damages = ("lost", "changed", "foreign")

    @pytest.fixture(params=[UpsertRig, InsertIfAbsentRig], ids=named)
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

    @pytest.fixture
    def rig(self, tmp_path):
        return rig_on_server(UpsertRig, tmp_path)
