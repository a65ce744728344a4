"""Records that Kafka no longer has, topics that are other ones, partitions that were added: on a real broker, exact numbers."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, OffsetSpec, ResourceType

from tests.crash.commandline import Ended, penstock
from tests.crash.kafka_world import PARTITIONS, admin, create, expect, feed, make_kafka_world, new_topic, produce, remove, rows_of
from tests.crash.stopping import stopped
from tests.crash.world import SCHEMA, Row, World
from tests.seed import SEED
from tests.servers.fixtures import server
from tests.servers.kafka import KafkaServer

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.usefixtures("spark")]
SET = AlterConfigOpType.SET
DEDUPLICATING = f"""
from pyspark.sql.functions import col, from_json

def unique(spark, sources):
    rows = sources["flights"].select(from_json(col("value").cast("string"), "{SCHEMA}").alias("v"))
    return rows.select("v.*").dropDuplicates(["id"])
"""

FIRST_DECISION = "ledger.sqlite_commit@2"
"""The first decision: the next batch is not planned yet."""


READERS = (
    ["spark", "python"] if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" else random.Random(SEED).sample(["spark", "python"], 1)
)
"""CI draws one; that both read alike, the suite of the readers' contract tries each time."""


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> str:
    """What reads the records: what is missing is told, and gone on behind, in the same way."""
    return str(request.param)


def test_expired_records_are_counted_and_the_policy_decides(tmp_path: Path, reader: str) -> None:
    world, topic, rows = delivered(tmp_path, reader)
    later = more(world, rows, 30)
    produce(topic, later)
    delete_records(topic, {0: 25})
    gap = f"no longer has 5 records of topic '{topic}' that were not delivered: partition 0 offsets 20 to 24."
    told(world, 3, gap)
    checked = told(world, 3, "5 records that were not delivered are gone", verb="check")
    assert checked["given"] == "exactly_once"
    assert [lag["lost"] for lag in status(world)["lag"]] == [5]
    policy(world, "fail", "wait")
    told(world, 75, gap)
    policy(world, "wait", "accept")
    told(world, 0, "")
    expect(world, [row for number, row in enumerate(later) if number % PARTITIONS or number // PARTITIONS >= 5])
    assert gaps_in_ledger(world) == [("decided", "expired", 0, 20, 25)]
    assert_delivered(world)


def test_records_that_retention_by_size_took_are_counted(tmp_path: Path) -> None:
    sizes = {"segment_bytes": str(1 << 20), "retention_bytes": str(1 << 20), "file_delete_delay_ms": "1"}
    topic = new_topic(1, **sizes)
    world = make_kafka_world(tmp_path, topic, seed=SEED, per_trigger=5000)
    rows = rows_of(world, random.Random(SEED), first=0, count=100)
    expect(world, rows)
    produce(topic, rows, partition=0)
    told(world, 0, "")
    later = [(number, "EWR", 1, "x" * 1000, 0.5) for number in range(100, 4100)]
    produce(topic, later, partition=0)
    low = awaited_low(topic, above=100)
    told(world, 3, f"no longer has {low - 100:,} records of topic {topic!r}", f"offsets 100 to {low - 1}")
    policy(world, "fail", "accept")
    told(world, 0, "")
    [(kind, why, partition, first, end)] = gaps_in_ledger(world)
    assert (kind, why, partition, first) == ("decided", "expired", 0, 100)
    assert end >= low
    expect(world, later[end - 100 :])
    assert_delivered(world)


@pytest.mark.parametrize("count", [9, 150], ids=["shorter", "longer"])
def test_a_topic_that_was_created_again_is_known_by_its_id(tmp_path: Path, reader: str, count: int) -> None:
    world, topic, rows = delivered(tmp_path, reader)
    produce(topic, more(world, rows, 6))
    old = topic_id(world)
    recreate(topic)
    new = rows_of(world, random.Random(SEED), first=1000, count=count)
    produce(topic, new)
    assert status(world)["lag"][0]["topic_id"] != old
    told(
        world,
        3,
        f"Topic {topic!r} was deleted and created again (its id was {old}, now it is ",
        "all of the old one was delivered",
    )
    policy(world, "fail", "accept")
    told(world, 0, "")
    expect(world, new)
    assert {(kind, why, first, end) for kind, why, _, first, end in gaps_in_ledger(world)} == {("adopted", "recreated", 20, 20)}
    assert_delivered(world)
    told(world, 0, "")
    assert_delivered(world)
    assert topic_id(world) != old


def test_a_topic_that_was_created_again_under_a_planned_batch(tmp_path: Path, reader: str) -> None:
    """The batch was planned by its old offsets and died; of what the ledger knew to be there, the rest is counted as lost."""
    topic = new_topic()
    world = make_kafka_world(tmp_path, topic, seed=SEED, per_trigger=30, more=f"reader: {reader}")
    rows = rows_of(world, random.Random(SEED), first=0, count=60)
    produce(topic, rows)
    expect(world, rows[:30])
    world.kill("ledger.sqlite_commit=kill@3")
    recreate(topic)
    new = rows_of(world, random.Random(SEED), first=1000, count=90)
    produce(topic, new)
    told(world, 3, "of the old one 30 records were not delivered: partition 0 offsets 10 to 19, partition 1 offsets 10 to 19")
    policy(world, "fail", "accept")
    told(world, 0, "")
    expect(world, new)
    assert [each[1:] for each in gaps_in_ledger(world)] == [("recreated", number, 10, 20) for number in range(PARTITIONS)]
    assert_delivered(world)


def test_a_topic_that_is_gone_is_missed_under_every_policy(tmp_path: Path, reader: str) -> None:
    world, topic, _ = delivered(tmp_path, reader)
    remove(topic)
    for before, after in (("fail", "accept"), ("accept", "fail")):
        policy(world, before, after)
        told(world, 3, f"Topic {topic!r} does not exist any more; all that was known of it was delivered.")


def test_partitions_that_were_added_are_read_from_their_first_record(tmp_path: Path, reader: str) -> None:
    world, topic, rows = delivered(tmp_path, reader)
    admin().create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result(60)
    later = more(world, rows, 12)
    expect(world, later)
    produce(topic, later, partition=PARTITIONS)
    told(world, 0, "")
    assert_delivered(world)
    newest = history(world)[0]
    [read] = newest["topics"]
    assert read["partitions"][str(PARTITIONS)] == {"start": 0, "end": 12, "low": 0, "high": 12}
    assert gaps_in_ledger(world) == []


def test_a_broker_that_lost_the_end_of_its_log_is_noticed(tmp_path: Path, reader: str) -> None:
    world, topic, rows = delivered(tmp_path, reader)
    running = server("kafka")
    lose_log(running, topic, 0)
    told(world, 3, f"Topic {topic!r} ends before what was read of it, by 20 records: partition 0 offsets 0 to 19")
    policy(world, "fail", "accept")
    told(world, 0, "")
    later = more(world, rows, 30)
    feed(world, topic, later)
    told(world, 0, "")
    assert [each[1:] for each in gaps_in_ledger(world)] == [("truncated", 0, 0, 20)]
    assert_delivered(world)


@pytest.mark.parametrize(("on_gap", "code"), [("fail", 3), ("accept", 75)])
def test_a_gap_that_opens_while_the_pipeline_runs(tmp_path: Path, reader: str, on_gap: str, code: int) -> None:
    """Spark may hold records that went since, from an earlier fetch: none of them may come out once they are noted as lost."""
    world, topic, rows = undelivered(tmp_path, on_gap, reader)
    with stopped(world, FIRST_DECISION) as driver:
        delete_records(topic, {0: 15})
        ended = driver.go_on()
    assert ended.code == code, ended
    assert "no longer has 5 records" in ended.err
    policy(world, on_gap, "accept")
    told(world, 0, "")
    later = [row for number, row in enumerate(rows) if number >= 30 and (number % PARTITIONS or number // PARTITIONS >= 15)]
    expect(world, rows[:30] + later)
    assert gaps_in_ledger(world) == [("decided", "expired", 0, 10, 15)]
    assert_delivered(world)


def test_what_only_state_still_needs_is_missed_under_every_policy(tmp_path: Path, reader: str) -> None:
    """The batch is decided, and Spark did not hear of it: it reads the rows again, for the state of dropDuplicates."""
    world, topic, _ = undelivered(tmp_path, "accept", reader)
    (tmp_path / "deduplicating.py").write_text(DEDUPLICATING)
    [line] = [line for line in world.file.read_text().splitlines() if line.startswith("transform:")]
    world.rewrite((line, "transform: {python: 'deduplicating:unique'}"))
    world.kill("sqlite.move=kill")
    delete_records(topic, {0: 5})
    told(world, 3, "partition 0 offsets 0 to 4", "needs them once more for the query's state")


def test_a_batch_that_waits_for_its_records_is_stopped_like_any_other(tmp_path: Path, reader: str) -> None:
    world, topic, rows = undelivered(tmp_path, "wait", reader)
    with stopped(world, FIRST_DECISION) as driver:
        delete_records(topic, {0: 15})
        driver.wake()
        said = driver.next_error_line()
        assert "batch 1 waits: Kafka no longer has 5 records" in said
        ended = driver.terminate()
    assert ended.code == 0, ended
    expect(world, rows[:30])
    world.assert_exact()


def delivered(root: Path, reader: str) -> tuple[World, str, list[Row]]:
    """A world that delivered twenty rows of each partition, and says what happens at a gap."""
    topic = new_topic()
    world = make_kafka_world(root, topic, seed=SEED, more=f"reader: {reader}\n    on_gap: fail")
    rows = rows_of(world, random.Random(SEED), first=0, count=60)
    feed(world, topic, rows)
    told(world, 0, "")
    return world, topic, rows


def undelivered(root: Path, on_gap: str, reader: str) -> tuple[World, str, list[Row]]:
    topic = new_topic()
    world = make_kafka_world(root, topic, seed=SEED, per_trigger=30, more=f"reader: {reader}\n    on_gap: {on_gap}")
    rows = rows_of(world, random.Random(SEED), first=0, count=60)
    produce(topic, rows)
    return world, topic, rows


def more(world: World, rows: list[Row], count: int) -> list[Row]:
    return rows_of(world, random.Random(SEED), first=len(rows), count=count)


def policy(world: World, before: str, after: str) -> None:
    if f"on_gap: {before}" not in world.file.read_text():
        world.rewrite(("    format: kafka\n", f"    format: kafka\n    on_gap: {before}\n"))
    world.rewrite((f"on_gap: {before}", f"on_gap: {after}"))


def told(world: World, code: int, *said: str, verb: str = "run", faults: str = "") -> Any:
    """Run it to the end; what it said last on standard output."""
    done = penstock(verb, str(world.file), *(["--available-now"] if verb == "run" else []), "--json", faults=faults)
    assert done.code == code, done
    assert [words for words in said if words not in done.out + done.err] == [], done
    return done.last if verb == "run" else whole(done)


def whole(done: Ended) -> Any:
    return json.loads(done.out)


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = whole(penstock("status", str(world.file), "--json"))
    return found


def gaps_in_ledger(world: World) -> list[tuple[object, ...]]:
    return [
        (row["kind"], gap["kind"], gap["partition"], gap["first"], gap["end"])
        for row in reversed(history(world))
        for gap in row["gaps"]
    ]


def topic_id(world: World) -> str:
    return str(next(row["topics"][0]["topic_id"] for row in history(world) if row["topics"]))


def history(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = whole(penstock("history", str(world.file), "--json"))
    return found


def assert_delivered(world: World) -> None:
    world.assert_exact()
    assert told(world, 0, verb="verify")["ok"]


def delete_records(topic: str, below: dict[int, int]) -> None:
    wanted = [TopicPartition(topic, number, offset) for number, offset in below.items()]
    for answer in admin().delete_records(wanted).values():
        answer.result(60)


def recreate(topic: str) -> None:
    remove(topic)
    create(topic)


def awaited_low(topic: str, *, above: int) -> int:
    """The first offset that the broker has once retention took some; then it takes no more."""
    while low_of(topic) <= above:
        pass
    kept = ConfigResource(
        ResourceType.TOPIC, topic, incremental_configs=[ConfigEntry("retention.bytes", "-1", incremental_operation=SET)]
    )
    for answer in admin().incremental_alter_configs([kept]).values():
        answer.result(60)
    return low_of(topic)


def low_of(topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return int(admin().list_offsets({partition: OffsetSpec.earliest()})[partition].result(60).offset)


def lose_log(running: KafkaServer, topic: str, number: int) -> None:
    """As if the disk had lost it: the topic is the same, and one partition is empty."""
    running.stop()
    for path in (running._directory / "data" / f"{topic}-{number}").iterdir():
        if path.suffix in {".log", ".index", ".timeindex", ".snapshot"} or path.name == "leader-epoch-checkpoint":
            path.unlink()
    running.start()
    running.await_led(topic, PARTITIONS)
