"""Topics that a pattern names and partitions that are assigned, end to end: some appear later, the driver is killed, and the
readers take turns.
"""

import json
import random
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.kafka_offset import topic_offsets_in
from penstock.core.model import SourceName
from tests.crash.commandline import Ended, penstock
from tests.crash.kafka_world import PARTITIONS, admin, create, expect, feed, make_kafka_world, produce, rows_of
from tests.crash.world import Row, World
from tests.servers.fixtures import server, unique
from tests.servers.kafka import ends_of
from tests.spark.streams import forget_commit

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(300)]

SEED = 23
KILL = "sqlite.commit=kill@2"


class Rows:
    """Rows of the world's kind, all of them unlike."""

    def __init__(self, world: World) -> None:
        self._world, self._generator, self._made = world, random.Random(SEED), 0

    def more(self, count: int = 60) -> list[Row]:
        self._made += count
        return rows_of(self._world, self._generator, first=1000 + self._made, count=count)


def test_topics_and_partitions_of_a_pattern_that_appear_later(spark: SparkSession, tmp_path: Path) -> None:
    """A pattern is looked for anywhere in a name."""
    prefix = unique("pattern")
    first, foreign = create(f"{prefix}.a"), create(f"x{prefix}.a")
    world = make_kafka_world(tmp_path, first, seed=SEED, more="reader: spark", topics=f'subscribePattern: "^{prefix}[.]"')
    rows = Rows(world)
    produce(foreign, rows.more())
    feed(world, first, rows.more())
    assert_run(world)
    world.assert_exact()
    admin().create_partitions([NewPartitions(first, PARTITIONS + 1)])[first].result(60)
    server("kafka").await_led(first, PARTITIONS + 1)
    second = create(f"{prefix}.b")
    added = rows.more(150)
    expect(world, added)
    produce(first, added, partition=PARTITIONS)
    feed(world, second, rows.more(150))
    world.kill(KILL)
    world.rewrite(("reader: spark", "reader: python"))
    assert_run(world)
    world.assert_exact()
    assert_read_to(world, {first: range(PARTITIONS + 1), second: range(PARTITIONS)})
    assert_replayed(world)
    world.rewrite((f"^{prefix}[.]", f"^{prefix}[.]b"))
    assert_refused(world, first)


def test_assigned_partitions_to_which_one_is_added(spark: SparkSession, tmp_path: Path) -> None:
    topic = create(unique("assigned"))
    assigned = json.dumps({topic: [0, 2]})
    world = make_kafka_world(tmp_path, topic, seed=SEED, more="reader: python", topics=f"assign: '{assigned}'")
    rows = Rows(world)
    parts = [rows.more(150) for _ in range(PARTITIONS)]
    for partition, part in enumerate(parts):
        produce(topic, part, partition=partition)
    expect(world, parts[0] + parts[2])
    world.kill(KILL)
    assert_run(world)
    world.assert_exact()
    assert_read_to(world, {topic: (0, 2)})
    world.rewrite((assigned, json.dumps({topic: [0, 1, 2]})), ("reader: python", "reader: spark"))
    expect(world, parts[1])
    feed(world, topic, rows.more())
    assert_run(world)
    world.assert_exact()
    assert_read_to(world, {topic: range(PARTITIONS)})
    assert_replayed(world)
    world.rewrite((json.dumps({topic: [0, 1, 2]}), json.dumps({topic: [0, 1]})))
    assert_refused(world, f"partition 2 of topic {topic!r}")


def assert_run(world: World) -> Ended:
    done = penstock("run", str(world.file), "--json")
    assert done.code == 0, str(done)
    return done


def assert_read_to(world: World, partitions: dict[str, "range | tuple[int, ...]"]) -> None:
    """Checkpoint and ledger agree that exactly these were read to the end that the broker tells."""
    bootstrap = server("kafka").bootstrap
    ends = {topic: {number: ends_of(bootstrap, topic, number)[1] for number in numbers} for topic, numbers in partitions.items()}
    checkpoint = SparkCheckpoint(world.checkpoint)
    newest = checkpoint.latest_offsets_id()
    assert newest is not None
    [planned] = checkpoint.batch(newest, [SourceName("flights")]).offsets
    decided = penstock("offsets", str(world.file), "--batch", str(newest), "--json")
    assert decided.code == 0, str(decided)
    [offsets] = json.loads(decided.out)["offsets"]
    for end in (planned.end, offsets["end"]):
        assert {topic: dict(found) for topic, found in topic_offsets_in(end).items()} == ends


def assert_replayed(world: World) -> None:
    """A batch whose end Spark had not logged is recognised by its offsets, and delivered once."""
    newest = SparkCheckpoint(world.checkpoint).latest_offsets_id()
    assert newest is not None
    forget_commit(world.checkpoint, newest)
    again = assert_run(world)
    assert {share["already_committed"] for share in again.last["sinks"].values()} == {1}
    world.assert_exact()
    world.assert_verified()


def assert_refused(world: World, left_out: str) -> None:
    """What was read is not named any more."""
    refused = penstock("run", str(world.file), "--json")
    assert (refused.code, refused.last["error"]["kind"]) == (3, "SourcesChanged"), str(refused)
    assert left_out in refused.err
