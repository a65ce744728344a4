"""Receivers and drivers are killed, and the machine crashes, while clients send: every acknowledged event is in every sink once.

Receiver: SIGKILL at random moments, also while it starts, and crashes of its machine, which take what was not forced to the disk
and the driver, too. Its clock jumps and its disk is full at times. Driver: SIGKILL at random moments.

CI runs a slice; `make soak` kills PENSTOCK_SOAK_KILLS drivers, and twice as many receivers beside a reader without Spark. The
seed is printed; PENSTOCK_SEED replays what is drawn from it, not the moments.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest

from penstock.journal.access import LocalJournal
from penstock.journal.inspection import verify_journal
from penstock.journal.readers import release
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage
from tests.crash import shared_java
from tests.crash.awaited import ended
from tests.crash.forked import Forked
from tests.crash.killing import let_pass
from tests.crash.logged_disk import LoggedDisk
from tests.crash.push_clients import Clients, Row
from tests.seed import SEED

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "2"))
EX_TRY_LATER = 75
CRASHED = 0.2
"""What share of the receiver's ends is a crash of its machine."""

PIPELINE = """\
pipeline: pushed
home: ./state
receive:
  journal: ./journal
  http: {listen: "127.0.0.1:0", body_timeout: 2s}
  tcp: {listen: "127.0.0.1:0", numbered: true}
  segment_size: 64kB
  least_free: 1MB
spark:
  conf: {spark.log.level: "OFF"}
sources:
  web: {format: journal, path: ./journal, options: {maxRecordsPerTrigger: 5000}}
transform:
  sql: SELECT CAST(value AS STRING) AS value, producer, producer_sequence FROM web
sinks:
  lake: {type: parquet, accounts: {a: ./lake/a, b: ./lake/b}, route: {hash: [value]}}
  table: {type: sqlite, url: "sqlite:///table.db", table: events, create: true}
  duck: {type: duckdb, url: "duckdb:///duck.db", table: events, create: true}
trigger: {processing_time: 200ms}
"""

pytestmark = [pytest.mark.crash, pytest.mark.campaign, pytest.mark.timeout(3600)]


class World:
    """A directory with a pipeline whose receiver and driver are killed. `kills` counts what was killed, and how."""

    def __init__(self, root: Path, generator: random.Random) -> None:
        self.root, self._generator = root, generator
        (root / "push.yaml").write_text(PIPELINE)
        self.disk = LoggedDisk(root / "journal", root / "operations.log")
        self.addresses: dict[str, str] = {"http": "127.0.0.1:1", "tcp": "127.0.0.1:1"}
        self.receiver: subprocess.Popen[str] | None = None
        self.driver: subprocess.Popen[str] | None = None
        self.kills: Counter[str] = Counter()
        self.lost_bytes, self._lives = 0, 0
        self._machine = threading.Lock()

    def address(self, protocol: str) -> tuple[str, int]:
        host, _, port = self.addresses[protocol].rpartition(":")
        return host, int(port)

    def start_receiver(self) -> None:
        self._lives += 1
        words = [str(self.disk.log), f"{SEED} {self._lives}", "receive", "push.yaml", "--json"]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        self.receiver = Forked(["-m", "tests.crash.logged_receiver", *words], cwd=self.root, env=environment)

    def await_receiver(self) -> None:
        """Wait until it listens. Where its disk was full as it started, it is started again, as a service would be."""
        assert self.receiver is not None
        while "addresses" not in (said := json.loads(self.receiver.stdout.readline() or "{}")):  # type: ignore[union-attr]
            out, errors = ended(self.receiver)
            assert self.receiver.returncode == EX_TRY_LATER, f"{said}{out}{errors}"
            self._count("full disk")
            self.start_receiver()
        self.addresses = said["addresses"]

    def _count(self, how: str) -> None:
        self.kills[f"receiver, {how}"] += 1
        self.disk.end_process()

    def end_receiver(self, how: str) -> None:
        """`how`: killed, or with its machine."""
        assert self.receiver is not None
        with self._machine if how == "machine" else nullcontext():
            if how == "machine" and self.driver is not None:
                with suppress(ProcessLookupError):
                    os.kill(self.driver.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(self.receiver.pid, signal.SIGKILL)
            _, errors = ended(self.receiver)
            assert self.receiver.returncode in {-signal.SIGKILL, EX_TRY_LATER}, errors
            self._count(how if self.receiver.returncode == -signal.SIGKILL else "full disk")
            if how == "machine":
                self.lost_bytes += self.disk.crash_machine(self._generator)

    def stop_receiver(self) -> None:
        assert self.receiver is not None
        self.receiver.send_signal(signal.SIGTERM)
        _, errors = ended(self.receiver)
        assert (self.receiver.returncode, "Traceback" in errors) == (0, False), errors

    def start_driver(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start it once the machine is up again: it would find files that the test has rewritten in part."""
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, **shared_java.environment()}
        with self._machine:
            self.driver = Forked(["-m", "penstock", "run", "push.yaml", "--json", *arguments], cwd=self.root, env=environment)
        return self.driver

    def rows(self) -> dict[str, Counter[Row]]:
        """What each sink has."""
        columns = "value, producer, producer_sequence"
        lake = ds.dataset([str(path) for path in (self.root / "lake").glob("[ab]/**/*.parquet")]).to_table()
        with sqlite3.connect(self.root / "table.db") as table:
            in_table = table.execute(f"SELECT {columns} FROM events").fetchall()
        with duckdb.connect(str(self.root / "duck.db"), read_only=True) as duck:
            in_duck = duck.execute(f"SELECT {columns} FROM events").fetchall()
        in_lake = zip(*(lake.column(name).to_pylist() for name in columns.split(", ")), strict=True)
        return {"lake": Counter(in_lake), "table": Counter(in_table), "duck": Counter(in_duck)}


def kill_receivers(world: World, clients: Clients, generator: random.Random, *, wanted: int) -> None:
    """Some are killed while they start; a crash of the machine comes on top of the `wanted` kills."""
    while world.kills["receiver, killed"] < wanted:
        assert world.receiver is not None
        let_pass(world.receiver, generator.uniform(0, 2.5))
        world.end_receiver("machine" if generator.random() < CRASHED else "killed")
        if generator.random() < 0.2:
            world.start_receiver()
            let_pass(world.receiver, generator.uniform(0, 1.0))
            world.end_receiver("killed")
        world.start_receiver()
        world.await_receiver()
        if generator.random() < 0.2:
            clients.storm(generator)


def kill_drivers(world: World, generator: random.Random, failures: list[str], *, wanted: int) -> None:
    """Two thirds of the kills come after the first batch was told, when the protocol's steps follow each other closely."""
    while world.kills["driver"] < wanted:
        driver = world.start_driver()
        if generator.random() < 0.67:
            driver.stdout.readline()  # type: ignore[union-attr]
            let_pass(driver, generator.uniform(0, 2.0))
        else:
            let_pass(driver, generator.uniform(0, 6.0))
        with suppress(ProcessLookupError):
            os.kill(driver.pid, signal.SIGKILL)
        out, err = ended(driver)
        world.kills["driver"] += 1
        if driver.returncode != -signal.SIGKILL:
            failures.append(f"driver ended with {driver.returncode}: {out[-1000:]}{err}")
            return


class Follower(threading.Thread):
    """A registered reader without Spark: what it reads stays for ever, as in a sink, and is released in the journal."""

    def __init__(self, home: Path) -> None:
        super().__init__(daemon=True)
        self._home, self._next, self._ends = home, 0, threading.Event()
        self.rows: Counter[Row] = Counter()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._ends.wait(0.2):
                self.read()
        except Exception as error:  # noqa: BLE001 - shown by `finish`
            self.error = error

    def read(self) -> None:
        """Read what is there, and release it."""
        journal = LocalJournal(LocalStorage(), self._home, now_us=lambda: time.time_ns() // 1000)
        extent = journal.extent()
        if extent is None or extent.next <= self._next:  # its note may be an older one after a crash, of events that are there
            return
        journal.hold("sink", extent, needed=self._next, planned=self._next)
        journal.plan("sink", extent, end=extent.next)  # as a source does: else these numbers may be given away again
        events = [
            each.event
            for each in JournalReader(LocalStorage(), self._home).read(self._next, extent.next, journal_id=extent.journal_id)
        ]
        self.rows.update((event.value.decode(), event.producer, event.number) for event in events)
        self._next = extent.next
        release(LocalStorage(), self._home, "sink", journal_id=extent.journal_id, below=extent.next, now_us=0)

    def finish(self) -> Counter[Row]:
        """Return all rows."""
        self._ends.set()
        self.join()
        assert self.error is None, self.error
        self.read()
        return self.rows


def said(world: World, clients: Clients) -> str:
    record = clients.record
    return (
        f"PENSTOCK_SEED={SEED} {dict(world.kills)}, crashes took {world.lost_bytes} bytes; acknowledged: "
        f"{sum(record.numbered.values())} numbered events and {len(record.acknowledged)} others; "
        f"{len(record.unanswered)} without an answer; answers {dict(record.statuses)}"
    )


def test_receivers_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    generator = random.Random(f"{SEED} receivers")
    world = World(tmp_path, generator)
    clients = Clients(SEED, http=lambda: world.address("http"), tcp=lambda: world.address("tcp"))
    follower = Follower(tmp_path / "journal")
    world.start_receiver()
    world.await_receiver()
    follower.start()
    clients.start()
    kill_receivers(world, clients, generator, wanted=2 * KILLS)
    clients.finish()
    world.stop_receiver()
    rows = follower.finish()
    print(said(world, clients))
    assert clients.record.problems(rows) == []
    assert verify_journal(LocalStorage(), tmp_path / "journal").ok


@pytest.mark.spark
def test_what_clients_had_acknowledged_is_in_every_sink_once(tmp_path: Path) -> None:
    """Drivers are killed, too."""
    print(f"PENSTOCK_SEED={SEED}")
    generator, failures = random.Random(f"{SEED} push"), list[str]()
    world = World(tmp_path, generator)
    clients = Clients(SEED, http=lambda: world.address("http"), tcp=lambda: world.address("tcp"))
    drivers = random.Random(f"{SEED} drivers")
    killing = threading.Thread(target=kill_drivers, args=(world, drivers, failures), kwargs={"wanted": KILLS}, daemon=True)
    world.start_receiver()
    world.await_receiver()
    clients.start()
    killing.start()
    while killing.is_alive():
        kill_receivers(world, clients, generator, wanted=world.kills["receiver, killed"] + 1)
    clients.finish()
    assert failures == []
    world.stop_receiver()
    last = world.start_driver("--available-now")
    out, err = ended(last)
    assert last.returncode == 0, out + err
    rows = world.rows()
    print(said(world, clients))
    assert {name: clients.record.problems(found) for name, found in rows.items()} == {name: [] for name in rows}
    assert rows["lake"] == rows["table"] == rows["duck"]
    assert verify_journal(LocalStorage(), tmp_path / "journal").ok
