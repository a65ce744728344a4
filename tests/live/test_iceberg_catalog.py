"""An Iceberg table in a catalog that PostgreSQL keeps, and in one behind the REST API whose answers get lost."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from tests.conformance.iceberg_rig import IcebergRig, OverlappingRestRig, RestRig
from tests.servers import proxy
from tests.servers.fixtures import server, unique

from penstock.errors import Conflict, Failed, OutcomeUnknown, Retryable
from penstock.sink.iceberg.catalog import CatalogAddress
from penstock.sink.lake.log import Change
from penstock.testing.conformance import PIPELINE, Bench


class PostgresRig(IcebergRig):
    """One table in a directory, in a catalog of PostgreSQL."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.url = str(server("postgres").database(unique("ice")))

    @property
    def catalog_uri(self) -> str:
        return self.url

    def table(self) -> Table:
        url = self.url.replace("postgresql", "postgresql+psycopg", 1)
        with closing(SqlCatalog("default", uri=url)) as catalog:
            return catalog.load_table(self.name)


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(request.param(tmp_path))
    yield bench
    bench.close()


def by(*rigs: type[IcebergRig]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bench", rigs, indirect=True, ids=[rig.__name__ for rig in rigs])


@by(PostgresRig, RestRig)
def test_a_batch_is_committed_once_and_a_stale_commit_is_refused(bench: Bench) -> None:
    sink = bench.sink()
    shown = [bench.deliver(sink, bench.rows(range(at, at + 30)), batch_id=at) for at in (0, 100)]
    rows = bench.rows(range(200, 230))
    last = bench.decide((rows, bench.stage(sink, rows, batch_id=200)), batch_id=200)
    stale = sink._log.newest()
    assert stale is not None
    assert not sink.publish(last.publication).already
    with pytest.raises(Conflict):
        stale.commit(Change(), last.publication)
    assert [bench.sink().publish(one.publication).already for one in (*shown, last)] == [True] * 3
    bench.require_shown(*shown, last)
    assert bench.verify(bench.sink()).ok


def commits(method: str, path: str) -> bool:
    return method == "POST" and "/tables/" in path


@by(RestRig, OverlappingRestRig)
@pytest.mark.parametrize("kind", ["lost", proxy.BAD_GATEWAY])
def test_a_commit_that_landed_without_an_answer_is_not_repeated(bench: Bench, kind: str) -> None:
    sink = bench.sink()
    bench.deliver(sink, bench.rows(range(40)), batch_id=0)
    rows = bench.rows(range(1000, 1040))
    shown = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
    with proxy.before(bench.rig.url) as between:
        bench.rig.url = between.endpoint
        between.arm(kind, commits, times=1)
        assert not bench.sink().publish(shown.publication).already
        assert between.hits == 1
        assert len([one for one in between.seen if commits(*one)]) == 1
        assert bench.sink().publish(shown.publication).already
        bench.require_shown(*bench.decided)
        assert bench.verify(bench.sink()).ok
    bench.rig.url = server("iceberg").url


@by(RestRig)
@pytest.mark.parametrize("kind", ["slow down", "reset"])
def test_a_commit_that_did_not_land_is_made_by_the_next_try(bench: Bench, kind: str) -> None:
    sink = bench.sink()
    rows = bench.rows(range(40))
    shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
    with proxy.before(bench.rig.url) as between:
        bench.rig.url = between.endpoint
        behind = bench.sink()
        between.arm(kind, commits, times=1)
        with pytest.raises(OutcomeUnknown, match="The commit to the Iceberg table"):
            behind.publish(shown.publication)
        assert not behind.publish(shown.publication).already
        bench.require_shown(shown)
    bench.rig.url = server("iceberg").url


@by(RestRig)
def test_a_catalog_that_does_not_answer(bench: Bench) -> None:
    sink = bench.sink()
    bench.deliver(sink, bench.rows(range(9)), batch_id=0)
    with proxy.before(bench.rig.url) as between:
        bench.rig.url = between.endpoint
        between.arm("lost", lambda method, path: "/tables/" in path, times=1)
        with pytest.raises(Retryable, match="cannot be read"):
            bench.rig.make().high_water_mark(sink.accounts[0], pipeline=PIPELINE)
    bench.rig.url = server("iceberg").url


def test_a_user_whom_the_catalog_refuses(tmp_path: Path) -> None:
    """Until catalog_options has the token that the message asks for."""
    rig = RestRig(tmp_path)
    with proxy.before(rig.url) as between:
        rig.url, between.token = between.endpoint, "geheim"
        with pytest.raises(Failed, match="refuses this user") as caught:
            rig.log().newest()
        assert "Set catalog_options: a token" in (caught.value.remedy or "")
        address = CatalogAddress(url=rig.url, options={"token": "geheim"})
        assert replace(rig.log(), catalog=address).newest() is None


def test_secrets_of_a_catalog_are_in_no_text() -> None:
    for address in (
        CatalogAddress(url="https://catalog.example/api", options={"token": "geheim"}),
        CatalogAddress(url="postgresql://ann:geheim@host/db"),
    ):
        assert "geheim" not in repr(address)


def test_a_commit_of_a_catalog_outlives_a_power_cut(tmp_path: Path) -> None:
    """By the default of SQLite it need not, nor in PostgreSQL if the role says so."""
    with closing(IcebergRig(tmp_path).address().open({})) as catalog, catalog.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA
    url = PostgresRig(tmp_path).url
    with psycopg.connect(url, autocommit=True) as own:
        own.execute(f"ALTER ROLE {own.info.user} IN DATABASE {own.info.dbname} SET synchronous_commit TO off")
    with closing(CatalogAddress(url=url).open({})) as catalog, catalog.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
