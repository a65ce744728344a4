"""A scratch pipeline that reads a topic of a real broker: what was produced, and committed, is what must come out."""

import json
import os
import random
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.crash.world import SCHEMA, Row, World, assert_same, make_world
from tests.servers.fixtures import server, unique
from tests.servers.kafka import connector, is_open, records

PARTITIONS = 3
COLUMNS = ("id", "origin", "month", "payload", "amount")
SOURCE = """\
    format: kafka
    {more}
    options:
      kafka.bootstrap.servers: "{servers}"
      {topics}
      startingOffsets: earliest
      maxOffsetsPerTrigger: {per_trigger}
      {options}
transform: {{sql: "SELECT v.* FROM (SELECT from_json(CAST(value AS STRING), '{schema}') AS v FROM flights)"}}
sinks:
"""
CSV = """\
    format: csv
    path: ./incoming
    schema: "{schema}"
    options: {{header: true, maxFilesPerTrigger: 2}}
sinks:
"""


def kafka_jars(directory: Path) -> dict[str, str]:
    """What the environment says of Spark's connector where no repository is asked."""
    directory.mkdir(exist_ok=True)
    for jar in connector():
        if not (directory / jar.name).exists():
            (directory / jar.name).symlink_to(jar)
    return {"PENSTOCK_KAFKA_JARS": str(directory)}


def make_kafka_world(
    root: Path, topic: str, *, seed: int, per_trigger: int = 100, more: str = "", options: str = "", topics: str | None = None
) -> World:
    """A world whose source is `topic`; nothing is produced yet."""
    running = server("kafka")
    world = make_world(root, files=0, rows_per_file=0, seed=seed)
    source = SOURCE.format(
        servers=running.bootstrap,
        topics=topics or f"subscribe: {topic}",
        per_trigger=per_trigger,
        schema=SCHEMA,
        more=more,
        options=options,
    )
    world.rewrite((CSV.format(schema=SCHEMA), "\n".join(line for line in source.splitlines() if line.strip()) + "\n"))
    os.environ.update(kafka_jars(root / "jars"))
    return world


def new_topic(partitions: int = PARTITIONS, **settings: str) -> str:
    """An empty topic that no other test gets."""
    return create(unique("flights"), partitions, **settings)


def admin() -> Any:
    return admin_of(server("kafka"))


@cache
def admin_of(running: Any) -> Any:
    """The client library's, kept: an answer is lost with the client that asked."""
    return running.admin()


def create(name: str, partitions: int = PARTITIONS, **settings: str) -> str:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    admin().create_topics([NewTopic(name, partitions, 1, config=named)])[name].result(60)
    return name


def remove(name: str) -> None:
    """That topic and all in it; returns when nobody finds it any more."""
    admin().delete_topics([name])[name].result(60)
    while name in admin().list_topics(timeout=60).topics:
        pass


def add_topic_sink(world: World) -> str:
    """A sink `topic` that makes records of the rows, into a topic of its own."""
    name = create(unique("shipped"), PARTITIONS, retention_ms="-1", retention_bytes="-1")
    places = f'bootstrap: "{server("kafka").bootstrap}", topic: {name}, marker_topic: {name}.markers'
    sink = f"{{type: kafka, {places}, key: origin, value: json}}"
    world.rewrite(("sinks:\n", f"sinks:\n  topic: {sink}\n"))
    return name


def assert_shipped(world: World, topic: str) -> None:
    """Every row is there once as a record of its own, and nobody waits for a transaction."""
    places = defaultdict[Row, list[str]](list)
    for message in records(server("kafka").bootstrap, topic):
        row = json.loads(message.value())
        assert message.key().decode() == row["origin"]
        places[tuple(row.get(column) for column in COLUMNS)].append(f"{message.partition()}@{message.offset()}")
    expected = sum(world.expected.values(), Counter[Row]())
    for row, there in places.items():
        if len(there) > expected[row]:
            print(f"{topic}: {row} is expected {expected[row]} times, found at {', '.join(there)} (partition@offset)")
    assert_same(topic, found=Counter({row: len(there) for row, there in places.items()}), expected=expected)
    assert not any(is_open(server("kafka").bootstrap, topic, partition) for partition in range(PARTITIONS))


def rows_of(world: World, generator: random.Random, *, first: int, count: int) -> list[Row]:
    """Rows as the world's own source has them."""
    return [world._row(generator, number) for number in range(first, first + count)]


def written(row: Row) -> bytes:
    return json.dumps(dict(zip(COLUMNS, row, strict=True))).encode()


def produce(topic: str, rows: list[Row], *, partition: int | None = None) -> None:
    """Spread over the partitions in turn, or into one of them; acknowledged when this returns."""
    producer = _producer()
    for number, row in enumerate(rows):
        producer.produce(topic, written(row), partition=number % PARTITIONS if partition is None else partition)
    assert producer.flush(60) == 0


def expect(world: World, rows: list[Row]) -> None:
    for row in rows:
        world.expected[str(row[1])][row] += 1


def feed(world: World, topic: str, rows: list[Row]) -> None:
    """Rows that must be delivered."""
    expect(world, rows)
    produce(topic, rows)


def transact(topic: str, rows: list[Row], *, commit: bool) -> None:
    """Rows of one transaction, which is committed, or aborted after the broker has them."""
    producer = _producer({"transactional.id": unique("feeder")})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number, row in enumerate(rows):
        producer.produce(topic, written(row), partition=number % PARTITIONS)
    producer.flush(60)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def _producer(more: dict[str, Any] | None = None) -> Any:
    return Producer({"bootstrap.servers": server("kafka").bootstrap, "linger.ms": 5, **(more or {})})
