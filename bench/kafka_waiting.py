"""How long readers of committed records wait: behind a transaction whose driver was killed, and from end to end."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.servers.fixtures import server
from tests.servers.kafka import KafkaServer, is_open, running

import penstock
from bench.measuring import SPOILT, Bench, require_content
from bench.result import PENSTOCK, Case, Table
from bench.servers import those_there

STALLS = 3
"""Rounds: each takes minutes, and nothing is compared."""
DEFAULTS = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "10000"}
"""What brokers have where nobody says otherwise: how often they look for transactions that are too old."""

PIPELINE = """\
pipeline: {topic}
home: ./{topic}
spark: {{master: "local[2]", conf: {{spark.ui.enabled: false, spark.log.level: "OFF"}}}}
sources:
  rows: {{format: csv, path: ./rows, schema: "id INT, name STRING"}}
sinks:
  out: {{type: kafka, bootstrap: "{bootstrap}", topic: {topic}, value: json, transaction_timeout: {timeout}}}
trigger: {{available_now: true}}
"""
LINES = 1_000
RATE = 10_000
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}


def measure(bench: Bench) -> Iterator[Table]:
    """Behind a driver that was killed, and from end to end."""
    if not those_there({"kafka": "Kafka"}):
        return
    yield _latencies(bench, server("kafka"))
    yield _stalls(bench, bench.scratch / "stalls")


# --- behind a driver that was killed


def _stalls(bench: Bench, scratch: Path) -> Table:
    """A driver is killed with an open transaction; a record behind it is read when that has ended."""
    (scratch / "rows").mkdir(parents=True)
    numbers = (0 if bench.spoilt and number == SPOILT else number for number in range(LINES))
    (scratch / "rows" / "all.csv").write_text("".join(f"{number},name {number}\n" for number in numbers))
    ways: dict[str, tuple[str, tuple[str, ...]]] = {
        "the next `penstock run`": ("1m", ("run",)),
        "`penstock recover`": ("1m", ("recover",)),
        "nobody starts, `transaction_timeout: 10s`": ("10s", ()),
    }
    longest: dict[str, tuple[str, tuple[str, ...]]] = {"nobody starts, the default of 1m": ("10s" if bench.quick else "1m", ())}
    topics = (f"stalled{number}" for number in count())
    with running(_made(scratch / "broker"), **DEFAULTS) as broker:

        def waited_s(_: str, way: tuple[str, tuple[str, ...]]) -> float:
            return _stalled_s(scratch, broker, next(topics), *way)

        figures = bench.in_rounds(ways, waited_s, rounds=STALLS) | bench.in_rounds(longest, waited_s, rounds=1)
    way = "until the reader goes on"
    return Table(
        name="stalls",
        title="A reader of committed records behind a driver that was killed in a transaction: how long until it goes on",
        unit="s",
        cases=tuple(Case(name=name, figures={way: taken}) for name, taken in figures.items()),
        ours=(way,),
        comparison="alone",
        note="From the SIGKILL on; the start of Python and Spark is in it. Brokers look for old transactions every 10 s, as they "
        f"do unless told otherwise. After each, every row was there once. {STALLS} rounds, of the last case one.",
    )


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _stalled_s(scratch: Path, broker: KafkaServer, topic: str, timeout: str, then: tuple[str, ...]) -> float:
    broker.topic(topic)
    file = scratch / f"{topic}.yaml"
    file.write_text(PIPELINE.format(topic=topic, bootstrap=broker.bootstrap, timeout=timeout))
    killed = _penstock(scratch, "run", file.name, faults="kafka.mark=stall:600@2")
    while not is_open(broker.bootstrap, topic):
        assert killed.poll() is None, "the driver ended by itself"
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    began = time.monotonic()
    started = _penstock(scratch, *then, file.name) if then else None
    _send(broker.bootstrap, topic, b"behind")
    _await_committed(broker.bootstrap, topic, b"behind")
    took = time.monotonic() - began
    if started is not None:
        assert started.wait(300) == 0
    if then != ("run",):
        assert _penstock(scratch, "run", file.name).wait(300) == 0
    found = [json.loads(value)["id"] for value in _committed(broker.bootstrap, topic) if value != b"behind"]
    require_content(sorted(found) == list(range(LINES)), expected=True, writer=PENSTOCK)
    return took


def _penstock(scratch: Path, *arguments: str, faults: str = "") -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        cwd=scratch,
        env={**os.environ, "PENSTOCK_FAULTS": faults},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _send(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def _reader(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(topic, 60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    return consumer


def _await_committed(bootstrap: str, topic: str, value: bytes) -> None:
    reader = _reader(bootstrap, topic)
    while True:
        message = reader.poll(1)
        if message is not None and message.error() is None and message.value() == value:
            reader.close()
            return


def _committed(bootstrap: str, topic: str) -> list[bytes]:
    """Of a topic of one partition."""
    reader, found = _reader(bootstrap, topic), list[bytes]()
    while True:
        message = reader.poll(60)
        assert message is not None, "the topic cannot be read"
        if message.error() is not None:
            reader.close()
            return found
        found.append(message.value() or b"")


# --- from end to end


@dataclass(frozen=True, kw_only=True)
class _Load:
    """So many records a second for so long; those of the first seconds are not counted."""

    rate: int
    seconds: int
    warm_up: int
    partitions: int = 2


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What a reader of the target saw: how late each counted record was, and how many there were of each."""

    late_ms: list[float]
    records: int
    distinct: int


def _latencies(bench: Bench, broker: KafkaServer) -> Table:
    """From a topic into a topic at a steady rate: how much later than it was sent a record is read."""
    load = _Load(rate=bench.sized(RATE, 100), seconds=bench.sized(10, 2), warm_up=bench.sized(3, 1))
    late: dict[str, dict[str, list[float]]] = {at: {} for at in QUANTILES}
    runs = count()

    def late_p50(name: str, start: "Callable[..., Any]") -> float:
        seen = _measured(bench, bench.scratch / f"latency{next(runs)}", broker, load, start)
        require_content((seen.records, seen.distinct), (load.rate * load.seconds,) * 2, writer=name)
        for at, share in QUANTILES.items():
            late[at].setdefault(name, []).append(_quantile(seen.late_ms, share))
        return late["p50"][name][-1]

    bench.in_rounds({PENSTOCK: _penstock_query, "Spark's own sink": _spark_query}, late_p50)
    return Table(
        name="latency",
        title=f"{RATE:,} records a second from one topic into another: from sending to being read as committed",
        unit="ms",
        cases=tuple(Case(name=at, figures=figures) for at, figures in late.items()),
        comparison="added",
        note=f"{load.seconds - load.warm_up} s in each round, {load.partitions} partitions, one broker; a batch begins when the "
        "one before it has ended. Sender, reader, broker and Spark share the cores. Spark's own sink is at-least-once.",
    )


def _quantile(values: list[float], at: float) -> float:
    return sorted(values)[int(at * (len(values) - 1))]


def _measured(bench: Bench, home: Path, broker: KafkaServer, load: _Load, start: "Callable[..., Any]") -> _Seen:
    number = int(time.time() * 1000)
    source, target = (broker.topic(f"{name}{number}", load.partitions) for name in ("from", "to"))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    stream = bench.spark.readStream.format("kafka").options(**options)
    rows = stream.option("kafka.isolation.level", "read_committed").load().select("key", "value")
    query = start(rows.writeStream, home, broker.bootstrap, target)
    processes, (ours, theirs) = multiprocessing.get_context("spawn"), multiprocessing.Pipe()
    reader = processes.Process(target=_read, args=(broker.bootstrap, target, load, theirs))
    sender = processes.Process(target=_produce, args=(broker.bootstrap, source, load))
    try:
        for process in (reader, sender):
            process.start()
        assert ours.poll(load.seconds + 120), "the reader did not see everything"
        return ours.recv()  # type: ignore[no-any-return]
    finally:
        for process in (reader, sender):
            process.kill()
            process.join()
        query.stop()
        for topic in (source, target):
            broker.remove(topic)


def _penstock_query(writer: Any, home: Path, bootstrap: str, target: str) -> Any:
    sink = penstock.Kafka(bootstrap=bootstrap, topic=target, marker_topic=f"{target}.markers")
    return penstock.Delivery("bench", home=home, sinks={"out": sink}).start(writer)


def _spark_query(writer: Any, home: Path, bootstrap: str, target: str) -> Any:
    places: Mapping[str, str] = {"kafka.bootstrap.servers": bootstrap, "topic": target, "checkpointLocation": str(home)}
    return writer.format("kafka").options(**places).start()


def _produce(bootstrap: str, topic: str, load: _Load) -> None:
    """A hundredth of a second's records at a time, each with the moment of its sending."""
    producer, pause = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0}), threading.Event()
    began = time.time()
    for number in range(load.rate * load.seconds):
        due = began + number / load.rate
        if number % max(1, load.rate // 100) == 0 and due > time.time():
            producer.poll(0)
            pause.wait(due - time.time())
        producer.produce(topic, f"{time.time_ns()}", key=f"{number}")
    producer.flush(60)


def _read(bootstrap: str, topic: str, load: _Load, to: "Connection") -> None:
    reader, late_ms, seen, records = _reader(bootstrap, topic), list[float](), set[int](), 0
    while len(seen) < load.rate * load.seconds:
        for message in reader.consume(5_000, 0.02):
            if message.error() is not None:
                continue
            number, now_ns = int(message.key() or b""), time.time_ns()
            records += 1
            seen.add(number)
            if number >= load.rate * load.warm_up:
                late_ms.append((now_ns - int(message.value() or b"")) / 1e6)
    to.send(_Seen(late_ms=late_ms, records=records, distinct=len(seen)))
