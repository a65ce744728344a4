"""Records out of Kafka: Penstock's own reader, which needs no jar, against Spark's connector."""

import shutil
from collections.abc import Iterator
from typing import Literal

import pyarrow.parquet as pq
from confluent_kafka import Producer
from tests.servers.fixtures import server

from bench.content import Fingerprint, fingerprint
from bench.measuring import Bench, require_content
from bench.queries import batchwise, run_available, trigger_ms
from bench.records import FEW, LARGE, PARTITIONS, SMALL, Records, RecordSize, new_topic, records_of
from bench.result import Case, Table
from bench.servers import those_there
from penstock.source.open import open_source
from penstock.spec.source import Source

Reader = Literal["python", "spark"]
OURS = "Penstock's own reader, without a jar"
READERS: dict[str, Reader] = {OURS: "python", "Spark's connector": "spark"}


def measure(bench: Bench) -> Iterator[Table]:
    """What was written into a topic, counted and hashed by Spark as it comes out of either reader."""
    if not those_there({"kafka": "Kafka"}):
        return
    yield Table(
        name="batches",
        title="Batches out of Kafka (whole triggers)",
        unit="ms",
        cases=tuple(_case(bench, size) for size in (SMALL, LARGE, FEW)),
        ours=(OURS,),
        amounts="records",
        note=f"{PARTITIONS} partitions, one broker. Each batch is counted and hashed. A round is the median batch of a query.",
    )


def _case(bench: Bench, size: RecordSize) -> Case:
    records = Records.of(bench, size)
    records.write(records.table)
    topic = new_topic()
    _produce(records, topic)
    expected = fingerprint(bench.spark.read.parquet(str(records.root)))
    figures = bench.in_rounds(
        READERS, lambda name, reader: _batch_ms(bench, records, topic, reader, expected), warm_up=size is SMALL
    )
    server("kafka").remove(topic)
    return Case(name=size.name, figures=figures, amount=records.rows)


def _produce(records: Records, topic: str) -> None:
    producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "linger.ms": 20, "batch.size": 1_000_000})
    number = 0
    for file in sorted(records.root.iterdir()):
        table = pq.read_table(file)
        for key, value in zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True):
            producer.produce(topic, value, key=key, partition=number % PARTITIONS)
            number += 1
            if number % 10_000 == 0:
                producer.flush(60)
    assert producer.flush(60) == 0


def _batch_ms(bench: Bench, records: Records, topic: str, reader: Reader, expected: Fingerprint) -> float:
    home = bench.scratch / "checkpoint"
    shutil.rmtree(home, ignore_errors=True)
    places = {"kafka.bootstrap.servers": server("kafka").bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    options = {**places, "maxOffsetsPerTrigger": str(records.rows)}
    rows = bench.on_its_way(records_of(open_source(bench.spark, "bench", Source(format="kafka", reader=reader, options=options))))
    found: list[Fingerprint] = []
    query = run_available(rows, batchwise(lambda batch, _: found.append(fingerprint(batch)), home))
    whole = (sum(count for count, _ in found), sum(digest for _, digest in found) % 2**64)
    require_content(whole, expected, writer=reader)
    return trigger_ms(query, warm_up=records.warm_up)
