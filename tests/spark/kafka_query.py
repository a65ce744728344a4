"""A query of one Kafka source, run again and again by either reader, and topics with known content."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.kafka_offset import topic_offsets_in
from penstock.core.model import BatchId, SourceName
from penstock.source.open import open_source
from penstock.spec.source import Source
from tests.servers.fixtures import server, unique
from tests.servers.kafka import await_settled
from tests.spark.streams import run

EPOCH_MS = 1_767_225_600_000
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp_ms", "timestampType")
S = SourceName("s")

Seen = tuple[object, ...]


@dataclass
class Query:
    """A query of one source with a checkpoint of its own, run again and again."""

    spark: SparkSession
    reader: str
    options: Mapping[str, object]
    checkpoint: Path
    on_gap: str = "fail"
    batches: list[list[Seen]] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    columns: Sequence[str] = COLUMNS

    def frame(self) -> DataFrame:
        needed = {"kafka.bootstrap.servers": server("kafka").bootstrap, "startingOffsets": "earliest"}
        source = Source(format="kafka", reader=self.reader, on_gap=self.on_gap, options={**needed, **self.options})
        return open_source(self.spark, "s", source).selectExpr("*", "unix_millis(timestamp) AS timestamp_ms")

    def run(self, *, inside: Callable[[], object] = lambda: None) -> list[list[Seen]]:
        """All that is there now; its batches. `inside` is called in each of them before the rows are read."""
        before = len(self.batches)

        def deliver(rows: DataFrame, _: int) -> None:
            inside()
            found = [tuple(_plain(value) for value in row) for row in rows.select(*self.columns).collect()]
            self.partitions.append(rows.rdd.getNumPartitions())
            self.batches.append(found)

        run(self.frame(), self.checkpoint, deliver)
        return self.batches[before:]

    def rows(self) -> "Counter[Seen]":
        """Everything that came, after one more run."""
        self.run()
        return Counter(row for batch in self.batches for row in batch)

    def ends(self) -> list[dict[str, dict[int, int]]]:
        """Where each batch ended, by the checkpoint."""
        found = SparkCheckpoint(self.checkpoint)
        newest = found.latest_offsets_id()
        numbers = range(0 if newest is None else newest + 1)
        ends = [topic_offsets_in(found.batch(BatchId(number), [S]).offsets[0].end) for number in numbers]
        return [{topic: dict(parts) for topic, parts in end.items()} for end in ends]


def _plain(value: object) -> object:
    if isinstance(value, bytearray):
        return bytes(value)
    return tuple(_plain(each) for each in value) if isinstance(value, list | tuple) else value


def produced(topic: str, numbers: Sequence[int], *, partitions: int = 1, **settings: Any) -> "Counter[Seen]":
    """Numbered records, in turn over the partitions; what a reader must say of them, without their offsets."""
    producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "linger.ms": 5, "log_level": 0, **settings})
    transactional = "transactional.id" in settings
    if transactional:
        producer.init_transactions(60)
        producer.begin_transaction()
    _send(producer, topic, numbers, partitions)
    if transactional:
        producer.commit_transaction(60)
        await_settled(server("kafka").bootstrap, topic, partitions)
    return Counter((b"v%d" % number, number % partitions) for number in numbers)


def _send(producer: Any, topic: str, numbers: Sequence[int], partitions: int) -> None:
    for number in numbers:
        producer.produce(topic, b"v%d" % number, key=b"k%d" % number, partition=number % partitions, timestamp=EPOCH_MS + number)
        producer.poll(0)
    assert producer.flush(60) == 0


def aborted(topic: str, numbers: Sequence[int], *, partitions: int = 1) -> None:
    producer = begun(topic, numbers, partitions=partitions)
    producer.abort_transaction(60)
    await_settled(server("kafka").bootstrap, topic, partitions)


def begun(topic: str, numbers: Sequence[int], *, partitions: int = 1) -> Any:
    """A producer whose transaction is open."""
    producer = Producer(
        {"bootstrap.servers": server("kafka").bootstrap, "transactional.id": unique("open"), "log_level": 0, "linger.ms": 5}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    _send(producer, topic, numbers, partitions)
    return producer


def values(rows: "Counter[Seen]") -> "Counter[Seen]":
    """Value and partition."""
    found: Counter[Seen] = Counter()
    for row, count in rows.items():
        found[row[1], row[3]] += count
    return found


def new_topic(partitions: int = 1, **settings: str) -> str:
    """That keeps records for ever, whatever their time stamps say."""
    return str(server("kafka").topic(unique("readers"), partitions, retention_ms="-1", **settings))


def delete_records(topic: str, below: dict[int, int]) -> None:
    wanted = [TopicPartition(topic, number, offset) for number, offset in below.items()]
    for answer in server("kafka").admin().delete_records(wanted).values():
        answer.result(60)


def dying(after: int) -> Callable[[], None]:
    """Raises in the batch after so many."""
    left = iter(range(after))

    def die() -> None:
        if next(left, None) is None:
            raise RuntimeError("the batch dies")

    return die
