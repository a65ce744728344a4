"""Topics of Kafka: Penstock's sink against Spark's own, which is at-least-once; and how long readers of its topics wait."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.servers.fixtures import server

import penstock
from bench.kafka_waiting import latencies, stalls
from bench.servers import those_there
from bench.table import Table, median, ratio

NAMES = {"kafka": "Kafka"}
ROUNDS = 3
PARTITIONS = 4
TUNED = {"kafka.linger.ms": "20", "kafka.batch.size": "1000000", "kafka.buffer.memory": "268435456"}
_topics = count()

Way = Callable[[str, Path], Callable[[Any], Any]]
"""Given a topic and a home, what starts a query of a writer."""


def measure(spark: SparkSession, scratch: Path, *, scale: int = 1) -> list[Table]:
    """Large batches of small and of larger records, and small batches; how long readers wait. `scale` times smaller for a try."""
    if not those_there(NAMES):
        return []
    sources = [
        _Input(root=scratch / "small", rows=100_000 // scale, size=100, batches=8, warm_up=2),
        _Input(root=scratch / "large", rows=50_000 // scale, size=1_000, batches=8, warm_up=2),
        _Input(root=scratch / "few", rows=1_000 // scale, size=100, batches=40, warm_up=12),
    ]
    ways: dict[str, Way] = {
        "Penstock": partial(_penstock, lanes=1),
        "Penstock, 2 lanes": partial(_penstock, lanes=2),
        "Spark's own sink": partial(_spark, options={}),
        "Spark's own sink, tuned": partial(_spark, options=TUNED),
    }
    compared = [_compared(spark, source, ways) for source in sources]
    return [*compared, stalls(scratch / "stalls"), latencies(spark, scratch / "latency", server("kafka"), scale=scale)]


@dataclass(frozen=True, kw_only=True)
class _Input:
    """Files of one batch each, of `rows` records of `size` bytes; the first `warm_up` are not counted."""

    root: Path
    rows: int
    size: int
    batches: int
    warm_up: int

    def write(self) -> None:
        """In the order of their times."""
        self.root.mkdir(parents=True)
        for batch in range(self.batches):
            keys = [f"{number}" for number in range(batch * self.rows, (batch + 1) * self.rows)]
            values = [(key + "-" + key * 200)[: self.size].ljust(self.size, "x") for key in keys]
            file = self.root / f"{batch:03}.parquet"
            pq.write_table(pa.table({"key": keys, "value": values}), file, row_group_size=max(1, self.rows // 4))
            os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))


def _compared(spark: SparkSession, source: _Input, ways: "Mapping[str, Way]") -> Table:
    source.write()
    expected = _fingerprint(spark.read.parquet(str(source.root)))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            topic = server("kafka").topic(f"bench{next(_topics)}", PARTITIONS)
            taken[name] += _batches_ms(spark, source, way(topic, source.root.parent / "home"))
            assert _fingerprint(_found(spark, topic)) == expected, name
            server("kafka").remove(topic)
    ours = median(taken["Penstock"])
    shown = [
        [name, f"{median(times):.0f}", f"{source.rows / median(times) * 1000:,.0f}", ratio(median(times) / ours)]
        for name, times in taken.items()
    ]
    return Table(
        f"{source.rows:,} records of {source.size} bytes a batch into Kafka, milliseconds per batch (median of whole triggers)",
        ["writer", "milliseconds", "records a second", "against Penstock"],
        shown,
        f"{ROUNDS} rounds in turns, {PARTITIONS} partitions, one broker. Spark's own sink is at-least-once.",
    )


def _batches_ms(spark: SparkSession, source: _Input, start: "Callable[[Any], Any]") -> list[float]:
    files = spark.readStream.schema("key STRING, value STRING").option("maxFilesPerTrigger", 1).parquet(str(source.root))
    query = start(files.writeStream.trigger(availableNow=True))
    query.awaitTermination()
    return [each.durationMs["triggerExecution"] for each in query.recentProgress if each.batchId >= source.warm_up]


def _penstock(topic: str, home: Path, *, lanes: int) -> "Callable[[Any], Any]":
    shutil.rmtree(home, ignore_errors=True)
    sink = penstock.Kafka(bootstrap=server("kafka").bootstrap, topic=topic, lanes=lanes, marker_topic=f"{topic}.markers")
    return penstock.Delivery("bench", home=home, sinks={"events": sink}).start


def _spark(topic: str, home: Path, *, options: Mapping[str, str]) -> "Callable[[Any], Any]":
    shutil.rmtree(home, ignore_errors=True)
    places = {"kafka.bootstrap.servers": server("kafka").bootstrap, "topic": topic, "checkpointLocation": str(home)}
    return lambda writer: writer.format("kafka").options(**places, **options).start()


def _found(spark: SparkSession, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": server("kafka").bootstrap, "subscribe": topic}
    read = spark.read.format("kafka").options(**options).option("kafka.isolation.level", "read_committed").load()
    return read.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")


def _fingerprint(frame: DataFrame) -> tuple[int, int]:
    hashed = frame.select(F.xxhash64("key", "value").cast("decimal(38,0)").alias("h"))
    row = hashed.agg(F.count("*"), F.sum("h")).first()
    assert row is not None
    return int(row[0]), int(row[1] or 0) % 2**64
