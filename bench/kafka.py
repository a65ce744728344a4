"""Topics of Kafka: Penstock's sink against Spark's own, which is at-least-once, its reader, and how long readers wait."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.servers.fixtures import server

import penstock
from bench.kafka_waiting import latencies, stalls
from bench.servers import those_there
from bench.session import write_checkpoints_in_process
from bench.table import Table, median, ratio
from bench.turns import in_turns
from penstock.source.open import open_source
from penstock.spec.source import Source

READERS = {"python": "Penstock's own reader, without a jar", "spark": "Spark's connector"}
NAMES = {"kafka": "Kafka"}
ROUNDS = 3
PARTITIONS = 4
TUNED = {"kafka.linger.ms": "20", "kafka.batch.size": "1000000", "kafka.buffer.memory": "268435456"}
_topics = count()

Way = Callable[[str, Path], Callable[[Any], Any]]
"""Given a topic and a home, what starts a query of a writer."""


def measure(spark: SparkSession, scratch: Path, *, scale: int = 1) -> Iterator[Table]:
    """Large batches of small and of larger records, and small batches; how long readers wait. `scale` times smaller for a try."""
    if not those_there(NAMES):
        return
    write_checkpoints_in_process(spark)
    sources = [
        _Input(root=scratch / "small", rows=100_000 // scale, size=100, batches=14, warm_up=6),
        _Input(root=scratch / "large", rows=50_000 // scale, size=1_000, batches=14, warm_up=6),
        _Input(root=scratch / "few", rows=1_000 // scale, size=100, batches=40, warm_up=12),
    ]
    ways: dict[str, Way] = {
        "Penstock": partial(_penstock, lanes=1),
        "Penstock, `publish_behind`": partial(_penstock, lanes=1, behind=True),
        "Penstock, 2 lanes": partial(_penstock, lanes=2),
        "Spark's own sink": partial(_spark, options={}),
        "Spark's own sink, tuned": partial(_spark, options=TUNED),
    }
    yield from (_compared(spark, source, ways) for source in sources)
    yield from _readers_compared(spark, scratch / "read", scale)
    yield stalls(scratch / "stalls")
    yield latencies(spark, scratch / "latency", server("kafka"), scale=scale)


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
    for name, way in in_turns(ways, ROUNDS):
        topic = server("kafka").topic(f"bench{next(_topics)}", PARTITIONS)
        taken[name] += _batches_ms(spark, source, way(topic, source.root.parent / "home"))
        assert _fingerprint(_found(spark, topic)) == expected, name
        server("kafka").remove(topic)
    return _table(source, "into", "writer", taken, note="Spark's own sink is at-least-once.")


def _table(source: _Input, way: str, kind: str, taken: "Mapping[str, list[float]]", *, note: str) -> Table:
    """`taken`: the milliseconds of each batch, of Penstock first."""
    ours = median(next(iter(taken.values())))
    shown = [
        [name, f"{median(times):.0f}", f"{source.rows / median(times) * 1000:,.0f}", ratio(median(times) / ours)]
        for name, times in taken.items()
    ]
    return Table(
        f"{source.rows:,} records of {source.size} bytes a batch {way} Kafka, milliseconds per batch (median of whole triggers)",
        [kind, "milliseconds", "records a second", "against Penstock"],
        shown,
        f"{ROUNDS} rounds in turns, {PARTITIONS} partitions, one broker. {note}",
    )


def _batches_ms(spark: SparkSession, source: _Input, start: "Callable[[Any], Any]") -> list[float]:
    files = spark.readStream.schema("key STRING, value STRING").option("maxFilesPerTrigger", 1).parquet(str(source.root))
    query = start(files.writeStream.trigger(availableNow=True))
    query.awaitTermination()
    return [each.durationMs["triggerExecution"] for each in query.recentProgress if each.batchId >= source.warm_up]


def _penstock(topic: str, home: Path, *, lanes: int, behind: bool = False) -> "Callable[[Any], Any]":
    shutil.rmtree(home, ignore_errors=True)
    sink = penstock.Kafka(bootstrap=server("kafka").bootstrap, topic=topic, lanes=lanes, marker_topic=f"{topic}.markers")
    return penstock.Delivery("bench", home=home, sinks={"events": sink}, publish_behind=behind).start


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


def _readers_compared(spark: SparkSession, scratch: Path, scale: int) -> list[Table]:
    """What was written into a topic, counted and hashed by Spark as it comes out of either reader."""
    sources = [
        _Input(root=scratch / "small", rows=200_000 // scale, size=100, batches=14, warm_up=6),
        _Input(root=scratch / "large", rows=50_000 // scale, size=1_000, batches=14, warm_up=6),
        _Input(root=scratch / "few", rows=1_000 // scale, size=100, batches=40, warm_up=12),
    ]
    return [_reading(spark, source) for source in sources]


def _reading(spark: SparkSession, source: _Input) -> Table:
    source.write()
    topic = server("kafka").topic(f"bench{next(_topics)}", PARTITIONS)
    _produce(source, topic)
    expected = _fingerprint(spark.read.parquet(str(source.root)))
    taken: dict[str, list[float]] = {name: [] for name in READERS.values()}
    for reader, name in in_turns(READERS, ROUNDS):
        taken[name] += _reading_ms(spark, source, topic, reader, expected)
    server("kafka").remove(topic)
    return _table(source, "out of", "reader", taken, note="Each batch is counted and hashed, and compared.")


def _produce(source: _Input, topic: str) -> None:
    producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "linger.ms": 20, "batch.size": 1_000_000})
    number = 0
    for file in sorted(source.root.iterdir()):
        table = pq.read_table(file)
        for key, value in zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True):
            producer.produce(topic, value, key=key, partition=number % PARTITIONS)
            number += 1
            if number % 10_000 == 0:
                producer.flush(60)
    assert producer.flush(60) == 0


def _reading_ms(spark: SparkSession, source: _Input, topic: str, reader: str, expected: tuple[int, int]) -> list[float]:
    home = source.root.parent / "checkpoint"
    shutil.rmtree(home, ignore_errors=True)
    places = {"kafka.bootstrap.servers": server("kafka").bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    options = {**places, "maxOffsetsPerTrigger": str(source.rows)}
    rows = open_source(spark, "bench", Source(format="kafka", reader=reader, options=options))
    found: list[tuple[int, int]] = []
    shown = rows.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    writer = shown.writeStream.foreachBatch(lambda batch, _: found.append(_fingerprint(batch)))
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(home)).start()
    query.awaitTermination()
    assert (sum(count for count, _ in found), sum(hashed for _, hashed in found) % 2**64) == expected, reader
    return [each.durationMs["triggerExecution"] for each in query.recentProgress if each.batchId >= source.warm_up]
