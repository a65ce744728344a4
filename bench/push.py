"""Pushed events: how long until one is acknowledged, against Kafka that flushes and fsync itself, and until it is a row."""

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.servers.kafka import READY, KafkaServer, records, running

from bench import push_load
from bench.measuring import SPOILT, Bench, in_turns, require_content
from bench.push_load import Load, Sent, expected_event
from bench.result import Case, Table
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage

PUSH_ROUNDS = 3
HTTP, LINES, EACH, GROUP, FSYNC = "HTTP", "TCP lines", "Kafka, a flush a message", "Kafka, a flush a group", "fsync itself"
OURS = (HTTP, LINES)
CLIENTS, SIZES, RATE, STEADY_CLIENTS = (1, 16, 256), (100, 1_000), 10_000, 10
_TICKS = os.sysconf("SC_CLK_TCK")

PIPELINE = """\
pipeline: pushed
home: ./state
receive:
  journal: ./journal
  http: {listen: "127.0.0.1:0"}
  tcp: {listen: "127.0.0.1:0"}
spark: {master: "local[2]", conf: {spark.ui.enabled: false, spark.log.level: "OFF"}}
sources:
  web: {format: journal, path: ./journal}
transform:
  sql: SELECT CAST(value AS STRING) AS value FROM web
sinks:
  events: {type: sqlite, url: "sqlite:///events.db", table: events, create: true}
"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One load's figures. `cpu_s`: of the process that acknowledges."""

    sent: Sent
    cpu_s: float = 0.0

    def late_ms(self, share: float) -> float:
        return sorted(self.sent.late_ms)[int(share * (len(self.sent.late_ms) - 1))]


Way = Callable[[Load], Measured]


def measure(bench: Bench) -> Iterator[Table]:
    """Acknowledgements of clients that wait, at a steady rate, and from sending to a published row."""
    if not READY.exists():
        print("push is not measured: Kafka is not there: run `make servers`")
        return
    places = (bench.scratch / f"push{number}" for number in count())
    with _broker(next(places)) as broker:
        ways: dict[str, Way] = {
            HTTP: lambda load: _received(next(places), load, "http", push_load.http),
            LINES: lambda load: _received(next(places), load, "tcp", push_load.tcp),
            EACH: lambda load: _to_kafka(broker, load, push_load.kafka_alone),
            GROUP: lambda load: _to_kafka(broker, load, push_load.kafka_grouped),
            FSYNC: lambda load: _forced(next(places), load),
        }
        yield from _waiting(bench, ways)
        yield _steady(bench, {name: ways[name] for name in (HTTP, LINES, GROUP)})
    yield _rows(bench, next(places))


def _waiting(bench: Bench, ways: Mapping[str, Way]) -> Iterator[Table]:
    """Each client sends its next event when the last one was acknowledged."""
    loads = {
        f"{clients} client{'s' * (clients > 1)}, {size:,} bytes": Load(
            address="", clients=clients, size=size, seconds=0.3 if bench.quick else 2, spoilt=bench.spoilt
        )
        for clients in ((2,) if bench.quick else CLIENTS)
        for size in SIZES
    }
    figures: dict[str, dict[str, dict[str, list[float]]]] = {}
    for case, load in loads.items():
        for name, way in in_turns(ways, min(PUSH_ROUNDS, bench.rounds)):
            found = way(load)
            for table, value in {
                "event": found.sent.seconds * 1e6 / found.sent.events,
                "p50": found.late_ms(0.5),
                "p99": found.late_ms(0.99),
                "cpu": found.cpu_s * 1e6 / found.sent.events,
            }.items():
                figures.setdefault(table, {}).setdefault(case, {}).setdefault(name, []).append(value)
    note = (
        f"{PUSH_ROUNDS} rounds of 2 s. Each client sends its next event when its last one was acknowledged; all share the cores. "
        "Kafka: one broker, `acks=all`, `log.flush.interval.messages=1`; a producer for each client, or one for all, which sends "
        "what waits together. fsync itself: a thread writes one event of each client, and forces them to the disk."
    )
    titles = {"event": ("Time for each event", "µs"), "p50": ("Half are acknowledged within", "ms"), "p99": ("99 % within", "ms")}
    for table, (title, unit) in titles.items():
        yield _table(table, title, unit, figures[table], note=note if table == "event" else "")
    used = {case: {name: values for name, values in each.items() if name != FSYNC} for case, each in figures["cpu"].items()}
    yield _table("cpu", "CPU time of receiver or broker for each event", "µs", used)


def _table(name: str, title: str, unit: str, figures: Mapping[str, Mapping[str, Sequence[float]]], *, note: str = "") -> Table:
    cases = tuple(Case(name=case, figures=each) for case, each in figures.items())
    return Table(name=name, title=title, unit=unit, cases=cases, ours=OURS, note=note)


def _steady(bench: Bench, ways: Mapping[str, Way]) -> Table:
    """So many events a second, whatever the answers take."""
    rate, seconds = (1_000, 0.5) if bench.quick else (RATE, 5)
    load = Load(address="", clients=STEADY_CLIENTS, size=100, seconds=seconds, rate=rate, spoilt=bench.spoilt)
    found: dict[str, dict[str, list[float]]] = {at: {} for at in ("p50", "p99")}
    for name, way in in_turns(ways, min(PUSH_ROUNDS, bench.rounds)):
        measured = way(load)
        for at, share in (("p50", 0.5), ("p99", 0.99)):
            found[at].setdefault(name, []).append(measured.late_ms(share))
    return Table(
        name="steady",
        title=f"{RATE:,} events a second of 100 bytes: until they are acknowledged",
        unit="ms",
        cases=tuple(Case(name=at, figures=figures) for at, figures in found.items()),
        ours=OURS,
        note=f"{PUSH_ROUNDS} rounds of 5 s. {STEADY_CLIENTS} clients send 10 events each 10 ms, over HTTP in one request. "
        "Counted from the moment at which an event was to be sent.",
    )


# --- the ways


@contextmanager
def _broker(directory: Path) -> "Iterator[KafkaServer]":
    directory.mkdir()
    before = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=4"  # tests start many brokers for seconds; this one is measured
    try:
        with running(directory, log_flush_interval_messages="1") as broker:
            yield broker
    finally:
        os.environ.pop("_JAVA_OPTIONS")
        if before is not None:
            os.environ["_JAVA_OPTIONS"] = before


@contextmanager
def _receiver(directory: Path) -> "Iterator[tuple[subprocess.Popen[str], Mapping[str, str]]]":
    directory.mkdir()
    (directory / "push.yaml").write_text(PIPELINE)
    command = [sys.executable, "-m", "penstock", "receive", "push.yaml", "--json"]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["addresses"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def _received(directory: Path, load: Load, protocol: str, send: push_load.Send) -> Measured:
    with _receiver(directory) as (process, addresses):
        measured = _measured(replace(load, address=addresses[protocol]), send, process.pid)
    _require(load, measured.sent, (record.event.value for record in _journal(directory)), writer=protocol)
    return measured


def _journal(directory: Path) -> "Iterator[Any]":
    reader = JournalReader(LocalStorage(), directory / "journal")
    extent = reader.extent()
    assert extent is not None
    return iter(reader.read(extent.first, extent.next, journal_id=extent.journal_id))


_topics = count()


def _to_kafka(broker: KafkaServer, load: Load, send: push_load.Send) -> Measured:
    topic = broker.topic(f"push{next(_topics)}")
    assert broker._process is not None
    measured = _measured(replace(load, address=broker.bootstrap, topic=topic), send, broker._process.pid)
    _require(load, measured.sent, (message.value() for message in records(broker.bootstrap, topic)), writer="Kafka")
    broker.remove(topic)
    return measured


def _forced(directory: Path, load: Load) -> Measured:
    directory.mkdir()
    data, late_ms = b"x" * load.size * load.clients, list[float]()
    began = time.perf_counter()
    with (directory / "file").open("wb", buffering=0) as file:
        while (at := time.perf_counter()) < began + load.seconds:
            file.write(data)
            os.fsync(file.fileno())
            late_ms.append((time.perf_counter() - at) * 1000)
    seconds = time.perf_counter() - began
    return Measured(sent=Sent(counts=(len(late_ms),) * load.clients, late_ms=late_ms, seconds=seconds))


def _measured(load: Load, send: push_load.Send, server: int) -> Measured:
    """Send in a process of its own, once for a moment before it counts."""
    processes, (ours, theirs) = multiprocessing.get_context("spawn"), multiprocessing.Pipe()
    sender = processes.Process(target=_send, args=(load, send, server, theirs))
    sender.start()
    try:
        assert ours.poll(load.seconds + 120), "not everything was acknowledged"
        return ours.recv()  # type: ignore[no-any-return]
    finally:
        sender.join()


def _send(load: Load, send: push_load.Send, server: int, to: "Connection") -> None:
    before = _cpu_s(server)
    sent = send(load)
    to.send(Measured(sent=sent, cpu_s=_cpu_s(server) - before))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _require(load: Load, sent: Sent, found: "Iterator[bytes]", *, writer: str) -> None:
    expected = (
        expected_event(client, number, load.size) for client, events in enumerate(sent.counts) for number in range(events)
    )
    require_content(Counter(found) == Counter(expected), expected=True, writer=writer)


# --- from sending to a row


def _rows(bench: Bench, directory: Path) -> Table:
    """While a pipeline runs, each batch beginning when the last one has ended."""
    rate, seconds = bench.sized(1_000, 100), bench.sized(15, 3)
    figures: dict[str, list[float]] = {"p50": [], "p99": []}
    with _receiver(directory) as (_, addresses), _driver(directory):
        for turn in range(min(PUSH_ROUNDS, bench.rounds)):
            late_ms = _rows_late_ms(directory, addresses["tcp"], rate, seconds, turn=turn, spoilt=bench.spoilt)
            for at, share in (("p50", 0.5), ("p99", 0.99)):
                figures[at].append(sorted(late_ms)[int(share * (len(late_ms) - 1))])
    way = "from sending to a published row"
    return Table(
        name="rows",
        title="From sending an event to its row in SQLite",
        unit="ms",
        cases=tuple(Case(name=at, figures={way: values}) for at, values in figures.items()),
        ours=(way,),
        comparison="alone",
        note=f"{PUSH_ROUNDS} rounds of 15 s, 1,000 events a second over TCP. Receiver, driver, Spark, sender and reader share "
        "the cores; a batch begins when the one before it has ended. Every row was there once.",
    )


@contextmanager
def _driver(directory: Path) -> "Iterator[None]":
    command = [sys.executable, "-m", "penstock", "run", "push.yaml", "--json"]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def _rows_late_ms(directory: Path, address: str, rate: int, seconds: int, *, turn: int, spoilt: bool) -> list[float]:
    """The first event is awaited alone: by then the driver runs."""
    host, _, port = address.rpartition(":")
    sent, late_ms, seen = rate * seconds, list[float](), Counter[int]()

    def send() -> None:
        client = push_load.LineClient(host, int(port))
        client.send([f"{turn} -1 {time.time_ns()}"])
        started.wait()
        began = time.time()
        for number in range(0, sent, rate // 100):
            time.sleep(max(0.0, began + number / rate - time.time()))
            shown = [0 if spoilt and each == SPOILT else each for each in range(number, number + rate // 100)]
            client.send([f"{turn} {each} {time.time_ns()}" for each in shown])
        client.close()

    started = threading.Event()
    sender = threading.Thread(target=send)
    sender.start()
    for value, now_ns in _new_rows(directory / "events.db", turn):
        started.set()
        _, number, sent_ns = value.split()
        seen[int(number)] += 1
        if int(number) >= sent // 5:
            late_ms.append((now_ns - int(sent_ns)) / 1e6)
        if seen.total() == sent + 1:
            break
    sender.join()
    require_content(seen == Counter(range(-1, sent)), expected=True, writer="the pipeline")
    return late_ms


def _new_rows(path: Path, turn: int) -> "Iterator[tuple[str, int]]":
    last = 0
    while True:
        with suppress(sqlite3.OperationalError):  # the table is not there yet
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            try:
                found = connection.execute("SELECT rowid, value FROM events WHERE rowid > ?", [last]).fetchall()
            finally:
                connection.close()
            now_ns = time.time_ns()
            last = max([last, *(number for number, _ in found)])
            yield from ((value, now_ns) for _, value in found if value.startswith(f"{turn} "))
        time.sleep(0.005)
