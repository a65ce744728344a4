"""Records into topics of Kafka: Penstock's sink against Spark's own, which is at-least-once."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame
from tests.servers.fixtures import server

import penstock
from bench.content import fingerprint
from bench.measuring import Bench, require_content
from bench.queries import run_available, trigger_ms
from bench.records import FEW, LARGE, PARTITIONS, SMALL, Records, RecordSize, new_topic, records_of
from bench.result import PENSTOCK, Case, Table
from bench.servers import those_there

BEHIND = "Penstock, `publish_behind`"
IN_TASKS = "Penstock, `publish_on: executors`, two lanes"
TUNED = {"kafka.linger.ms": "20", "kafka.batch.size": "1000000", "kafka.buffer.memory": "268435456"}

Way = Callable[[str, Path], Callable[[Any], Any]]
"""Given a topic and a home, what starts a query of a writer."""


def measure(bench: Bench) -> Iterator[Table]:
    """Large batches of small and of larger records, and small batches."""
    if not those_there({"kafka": "Kafka"}):
        return
    yield Table(
        name="batches",
        title="Batches into Kafka (whole triggers)",
        unit="ms",
        cases=tuple(_case(bench, size) for size in (SMALL, LARGE, FEW)),
        ours=(PENSTOCK, BEHIND, IN_TASKS),
        amounts="records",
        note=f"{PARTITIONS} partitions, one broker. Spark's own sink is at-least-once. A round is the median batch of a query.",
    )


def _case(bench: Bench, size: RecordSize) -> Case:
    ways: dict[str, Way] = {
        PENSTOCK: _penstock,
        BEHIND: partial(_penstock, behind=True),
        IN_TASKS: partial(_penstock, lanes=2, publish_on="executors"),
        "Spark's own sink": partial(_spark, options={}),
        "Spark's own sink, tuned": partial(_spark, options=TUNED),
    }
    records = Records.of(bench, size)
    records.write(records.table)
    expected = fingerprint(bench.spark.read.parquet(str(records.root)))

    def batch_ms(name: str, way: Way) -> float:
        topic, home = new_topic(), bench.scratch / "home"
        shutil.rmtree(home, ignore_errors=True)
        query = run_available(records.stream(bench), way(topic, home))
        require_content(fingerprint(_found(bench, topic)), expected, writer=name)
        server("kafka").remove(topic)
        return trigger_ms(query, warm_up=records.warm_up)

    return Case(name=size.name, figures=bench.in_rounds(ways, batch_ms, warm_up=size is SMALL), amount=records.rows)


def _penstock(
    topic: str, home: Path, *, behind: bool = False, lanes: int = 1, publish_on: Literal["driver", "executors"] = "driver"
) -> "Callable[[Any], Any]":
    sink = penstock.Kafka(bootstrap=server("kafka").bootstrap, topic=topic, marker_topic=f"{topic}.markers", lanes=lanes)
    return penstock.Delivery("bench", home=home, sinks={"events": sink}, publish_behind=behind, publish_on=publish_on).start


def _spark(topic: str, home: Path, *, options: Mapping[str, str]) -> "Callable[[Any], Any]":
    places = {"kafka.bootstrap.servers": server("kafka").bootstrap, "topic": topic, "checkpointLocation": str(home)}
    return lambda writer: writer.format("kafka").options(**places, **options).start()


def _found(bench: Bench, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": server("kafka").bootstrap, "subscribe": topic}
    return records_of(
        bench.spark.read.format("kafka").options(**options).option("kafka.isolation.level", "read_committed").load()
    )
