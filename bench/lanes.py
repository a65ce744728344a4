"""Lanes of Kafka over a slow link: by the driver and by tasks, one to eight, where each connection is the limit."""

import shutil
from collections.abc import Iterator
from typing import Literal

from tests.servers.fixtures import server
from tests.servers.slow_link import slow_link

import penstock
from bench.content import Fingerprint, fingerprint
from bench.measuring import Bench, require_content
from bench.queries import run_available, trigger_ms
from bench.records import Records, RecordSize, new_topic, records_of
from bench.result import PENSTOCK, Case, Table
from bench.servers import those_there

Publisher = Literal["driver", "executors"]

IN_TASKS = "Penstock, `publish_on: executors`"
PUBLISHERS: dict[str, Publisher] = {PENSTOCK: "driver", IN_TASKS: "executors"}
LANES = (1, 2, 4, 8)
SIZE = RecordSize(20_000, 1_000, 3, 1)
BYTES_A_SECOND, LATENCY_S = 4_000_000, 0.005
ROUNDS = 3
"""Fewer than usual: what takes the time is a link that is always as slow."""


def measure(bench: Bench) -> Iterator[Table]:
    """The same batch through more and more connections."""
    if not those_there({"kafka": "Kafka"}):
        return
    records = Records.of(bench, SIZE)
    records.write(records.table)
    expected = fingerprint(bench.spark.read.parquet(str(records.root)))
    running = server("kafka")
    with slow_link(running.behind, at=running.proxied, bytes_a_second=BYTES_A_SECOND, latency_s=LATENCY_S):
        cases = tuple(_case(bench, records, expected, lanes) for lanes in LANES)
    yield Table(
        name="links",
        title="Lanes of Kafka over a slow link (whole triggers)",
        unit="ms",
        cases=cases,
        ours=(PENSTOCK, IN_TASKS),
        comparison="alone",
        amounts="records",
        note=f"Each connection to the broker passes {BYTES_A_SECOND // 1_000_000} MB a second, {LATENCY_S * 1000:.0f} ms later. "
        f"`local[{max(LANES)}]`: as many tasks as lanes. A round is the median batch of a query.",
    )


def _case(bench: Bench, records: Records, expected: Fingerprint, lanes: int) -> Case:
    figures = bench.in_rounds(
        PUBLISHERS,
        lambda name, publisher: _batch_ms(bench, records, expected, lanes=lanes, publisher=publisher, name=name),
        rounds=ROUNDS,
    )
    return Case(name=f"{lanes} lane{'s' * (lanes > 1)}", figures=figures, amount=records.rows)


def _batch_ms(bench: Bench, records: Records, expected: Fingerprint, *, lanes: int, publisher: Publisher, name: str) -> float:
    topic, home = new_topic(), bench.scratch / "home"
    shutil.rmtree(home, ignore_errors=True)
    sink = penstock.Kafka(bootstrap=server("kafka").bootstrap_proxied, topic=topic, marker_topic=f"{topic}.markers", lanes=lanes)
    delivery = penstock.Delivery("bench", home=home, sinks={"events": sink}, publish_on=publisher)
    query = run_available(records.stream(bench).repartition(max(LANES)), delivery.start)
    options = {"kafka.bootstrap.servers": server("kafka").bootstrap, "subscribe": topic}
    committed = bench.spark.read.format("kafka").options(**options).option("kafka.isolation.level", "read_committed").load()
    require_content(fingerprint(records_of(committed)), expected, writer=f"{name} with {lanes} lanes")
    server("kafka").remove(topic)
    return trigger_ms(query, warm_up=records.warm_up)
