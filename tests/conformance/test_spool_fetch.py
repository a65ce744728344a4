"""What lies in a store is fetched before a database waits for it, and removed after: on real databases, before a real store."""

import os
import resource
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.test_spool_places import PIPELINE as PLACED
from tests.conformance.test_spool_places import Kept, rows, stage
from tests.servers.proxy import Proxy, before
from tests.unit import mysql_target, postgres_target, sqlite_target
from tests.unit.table_target import SINK, TableBench

from penstock.commit.append import NO_PAUSE
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import StagedBatch
from penstock.core.model import Batch, BatchId, Generation, Opened
from penstock.errors import PublishFailed, Retryable
from penstock.ledger.log import LogLedger
from penstock.ledger.mysql import MysqlLedger
from penstock.ledger.postgres import PostgresLedger
from penstock.ledger.sqlite import SqliteLedger
from penstock.ledger.store import MemoryStore
from penstock.protocols import Ledger
from penstock.sink.mysql.sink import MysqlSink
from penstock.sink.postgres.sink import PostgresSink
from penstock.sink.spool import SpoolRoot
from penstock.sink.sqlite import SqliteSink
from penstock.sink.table.sink import TableSink
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.bench import QUERY

OPENED = Opened(owner="host:1", checkpoint="/checkpoint", pipeline_digest="0" * 16, sinks=(SINK,), versions={})
OPEN_IN_POSTGRES = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""
OPEN_IN_MYSQL = """
SELECT count(*) FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id
WHERE db = database() AND id <> connection_id()
"""


class Postgres(postgres_target.TableRig):
    def on(self, root: SpoolRoot) -> TableSink:
        return PostgresSink(name=SINK, url=self.url, table="t", spool=root, inline_limit_bytes=0)

    def ledger(self) -> Ledger:
        return PostgresLedger(self.url, pipeline=PIPELINE)

    def open_transactions(self) -> int:
        return int(self.sql(OPEN_IN_POSTGRES)[0][0])


class Mysql(mysql_target.TableRig):
    def on(self, root: SpoolRoot) -> TableSink:
        return MysqlSink(name=SINK, url=self.url, table="t", spool=root, inline_limit_bytes=0)

    def ledger(self) -> Ledger:
        return MysqlLedger(self.url, pipeline=PIPELINE)

    def open_transactions(self) -> int:
        return int(self.sql(OPEN_IN_MYSQL)[0][0])


class Sqlite(sqlite_target.TableRig):
    def on(self, root: SpoolRoot) -> TableSink:
        return SqliteSink(name=SINK, path=self.path, table="t", spool=root, inline_limit_bytes=0)

    def ledger(self) -> Ledger:
        return SqliteLedger(self.path, pipeline=PIPELINE)

    def open_transactions(self) -> int:
        """That write."""
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=0)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return 1
        finally:
            connection.close()
        return 0


Rig = Postgres | Mysql | Sqlite
RIGS = {"mysql": Mysql, "postgres": Postgres, "sqlite": Sqlite}


class Delivering:
    """A pipeline with one table whose rows wait in a store behind a proxy."""

    def __init__(self, rig: Rig, kept: Kept, *, rides: bool) -> None:
        self.rig, self.kept = rig, kept
        self.sink = rig.on(kept.root)
        rig.make = lambda: self.sink  # type: ignore[assignment, method-assign]
        self.bench = TableBench(rig)
        self.bench.sink()
        self.ledger = rig.ledger() if rides else LogLedger(MemoryStore(), pipeline=PIPELINE)
        self.coordinator = self.opened()

    def opened(self) -> Coordinator:
        made = Coordinator(pipeline=PIPELINE, ledger=self.ledger, sinks=[self.sink], now_ms=lambda: 0, retrying=NO_PAUSE)
        made.open(OPENED)
        return made

    def deliver(self, attempts: list[list[tuple[int, str]]], *, batch_id: int) -> None:
        def stage(generation: Generation) -> StagedBatch:
            staged = [
                piece
                for at, rows in enumerate(attempts)
                for piece in self.bench.stage(
                    self.sink, self.bench.named(rows), batch_id=batch_id, generation=generation, partition=at
                )
            ]
            return StagedBatch(pieces=tuple(staged), rows_in=sum(map(len, attempts)), schema=self.rig.schema)

        self.coordinator.deliver(Batch(query_id=QUERY, batch_id=BatchId(batch_id), offsets=()), stage)

    def shown(self) -> Counter[tuple[int, str]]:
        return Counter(self.bench.sql("SELECT id, name FROM t"))

    def close(self) -> None:
        self.bench.close()
        self.ledger.close()


@pytest.fixture
def proxied() -> Iterator[tuple[Kept, Proxy]]:
    kept = Kept("s3")
    with before(kept.place.options["endpoint"]) as proxy:
        kept.root = SpoolRoot(url=kept.place.url, options={**kept.place.options, "endpoint": proxy.endpoint, "attempts": "1"})
        yield kept, proxy


@pytest.fixture(params=["mysql", "postgres", "sqlite", "riding mysql", "riding postgres", "riding sqlite"])
def delivering(request: pytest.FixtureRequest, tmp_path: Path, proxied: tuple[Kept, Proxy]) -> Iterator[Delivering]:
    kind = request.param.rpartition(" ")[2]
    made = Delivering(RIGS[kind](tmp_path), proxied[0], rides=request.param != kind)
    yield made
    made.close()


ATTEMPTS = [[(10 * at + number, f"{at}") for number in range(3)] for at in range(6)]
ROWS = Counter(row for rows in ATTEMPTS for row in rows)


def test_no_transaction_is_open_while_pieces_are_fetched_and_removed(delivering: Delivering, proxied: tuple[Kept, Proxy]) -> None:
    """A store may be slower than a database lets a transaction stand idle."""
    kept, proxy = proxied
    seen: list[tuple[str, int]] = []

    def look(method: str, path: str) -> bool:
        if ".arrow" in path and method in {"GET", "DELETE"}:
            seen.append((method, delivering.rig.open_transactions()))
        return False

    proxy.arm("", look, times=-1)
    delivering.deliver(ATTEMPTS, batch_id=0)
    assert Counter(seen) == Counter({("GET", 0): len(ATTEMPTS), ("DELETE", 0): len(ATTEMPTS)})
    assert delivering.shown() == ROWS
    assert kept.names() == []


def test_what_the_table_shows_is_not_fetched_again(delivering: Delivering, proxied: tuple[Kept, Proxy]) -> None:
    """A start publishes the newest batch again, whose pieces are gone."""
    _, proxy = proxied
    delivering.deliver(ATTEMPTS, batch_id=0)
    before_it = len(proxy.seen)
    delivering.opened()
    assert [path for method, path in proxy.seen[before_it:] if ".arrow" in path and method == "GET"] == []
    assert delivering.shown() == ROWS


def test_a_store_that_gives_nothing_leaves_nothing_open(delivering: Delivering, proxied: tuple[Kept, Proxy]) -> None:
    """Neither a transaction nor a copy on this machine; the next start delivers."""
    kept, proxy = proxied
    copies = nameless_files()
    proxy.arm("slow down", lambda method, path: method == "GET" and ".arrow" in path, times=-1)
    with pytest.raises((PublishFailed, Retryable)):
        delivering.deliver(ATTEMPTS, batch_id=0)
    assert proxy.hits >= len(ATTEMPTS)
    assert delivering.rig.open_transactions() == 0
    assert nameless_files() == copies
    assert delivering.shown() == Counter()
    proxy.arm("", lambda *_: False, times=0)
    delivering.coordinator = delivering.opened()
    delivering.deliver(ATTEMPTS, batch_id=0)
    assert delivering.shown() == ROWS
    assert nameless_files() == copies
    assert kept.names() == []


def test_what_another_driver_publishes_while_it_is_fetched_is_fine(delivering: Delivering, proxied: tuple[Kept, Proxy]) -> None:
    """It removes the pieces then, in the middle of ours being fetched."""
    _, proxy = proxied
    bench = delivering.bench
    attempts = [bench.named(rows) for rows in ATTEMPTS]
    staged = [(rows, bench.stage(delivering.sink, rows, batch_id=0, partition=at)) for at, rows in enumerate(attempts)]
    publication = bench.decide(*staged, batch_id=0).publication
    other = delivering.rig.on(SpoolRoot(url=delivering.kept.place.url, options=delivering.kept.place.options))
    overtaken: list[bool] = []

    def overtake(method: str, path: str) -> bool:
        if method == "GET" and ".arrow" in path and not overtaken:
            overtaken.append(True)
            overtaken[0] = not other.publish(publication).already  # type: ignore[attr-defined]
        return False

    proxy.arm("", overtake, times=-1)
    assert delivering.sink.publish(publication).already  # type: ignore[attr-defined]
    assert overtaken == [True]
    other.close()  # type: ignore[attr-defined]
    assert delivering.shown() == ROWS


def test_pieces_that_do_not_fit_on_this_machine_are_told() -> None:
    kept = Kept("s3")
    spool = kept.spool()
    pieces = [stage(spool, rows(100_000)) for _ in range(3)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, limits[1]))
    try:
        with (
            pytest.raises(Retryable, match="cannot be fetched from the spool into") as told,
            spool.fetched(pieces, pipeline=PLACED),
        ):
            raise AssertionError("they do not fit")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "TMPDIR" in told.value.remedy


def nameless_files() -> int:
    """How many files without a name this process has open."""
    return sum(os.path.realpath(link).endswith("(deleted)") for link in Path("/proc/self/fd").iterdir())
