"""Spark's connector and Penstock's own reader of Kafka: the same cases on both, on a real broker, with exact content."""

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.seed import SEED
from tests.servers.fixtures import server, unique
from tests.servers.kafka import is_open
from tests.spark.kafka_query import (
    COLUMNS,
    EPOCH_MS,
    Query,
    Seen,
    aborted,
    begun,
    delete_records,
    dying,
    new_topic,
    produced,
    values,
)
from tests.spark.streams import forget_commit


@pytest.fixture(params=["spark", "python"])
def reader(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path, reader: str) -> Callable[..., Query]:
    def made(*topics: str, on_gap: str = "fail", columns: Sequence[str] = COLUMNS, **options: object) -> Query:
        named = {"subscribe": ",".join(topics)} if topics else {}
        place = tmp_path / unique("checkpoint")
        return Query(spark, reader, {**named, **options}, place, on_gap=on_gap, columns=columns)

    return made


def test_records_come_as_they_are(query: Callable[..., Query]) -> None:
    """Without a key, without a value, empty ones, with headers of one name, with one that has no value."""
    topic = new_topic()
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
        (b"k", b"v", [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None)]),
        (None, b"no key", None),
        (b"tombstone", None, None),
        (b"", b"", []),
        (None, None, [("ü", "ü".encode())]),
        (b"\xff\x00", bytes(range(256)) * 3000, None),
    ]
    producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "log_level": 0})
    for number, (key, value, headers) in enumerate(sent):
        producer.produce(topic, value, key=key, headers=headers, timestamp=EPOCH_MS + number)
    assert producer.flush(60) == 0
    expected: list[Seen] = [
        (key, value, topic, 0, number, EPOCH_MS + number, 0, tuple(headers) if headers else None)
        for number, (key, value, headers) in enumerate(sent)
    ]
    assert query(topic, includeHeaders=True, columns=(*COLUMNS, "headers")).run() == [expected]


def test_the_time_of_the_broker_is_known_as_such(query: Callable[..., Query]) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    produced(topic, range(3))
    [rows] = query(topic).run()
    assert [row[6] for row in rows] == [1, 1, 1]
    assert all(before_ms - 60_000 < int(str(row[5])) < before_ms + 60_000 for row in rows)


def test_columns_are_those_of_sparks_connector(spark: SparkSession, tmp_path: Path) -> None:
    for more in ({}, {"includeHeaders": True}):
        schemas = [
            Query(spark, reader, {"subscribe": "any", **more}, tmp_path).frame().schema.jsonValue()
            for reader in ("spark", "python")
        ]
        assert schemas[0] == schemas[1]


def test_each_record_comes_once_and_a_partition_in_its_order(query: Callable[..., Query]) -> None:
    topic = new_topic(3)
    expected = produced(topic, range(30_000), partitions=3)
    mine = query(topic, maxOffsetsPerTrigger=20_000)
    assert values(mine.rows()) == expected
    assert len(mine.batches) == 2
    for batch in mine.batches:
        offsets = defaultdict(list)
        for row in batch:
            offsets[row[3]].append(row[4])
        assert all(found == sorted(found) for found in offsets.values())


def test_only_committed_records_come_and_open_ones_wait(query: Callable[..., Query]) -> None:
    """An aborted transaction and marks of committed ones end the log: no record stands where the batch ends."""
    topic = new_topic(2)
    expected = produced(topic, range(20), partitions=2)
    aborted(topic, range(100, 160), partitions=2)
    expected += produced(topic, range(20, 40), partitions=2, **{"transactional.id": unique("done")})
    aborted(topic, range(160, 200), partitions=2)
    mine = query(topic)
    assert values(mine.rows()) == expected
    waiting = begun(topic, range(40, 50), partitions=2)
    later = produced(topic, range(50, 60), partitions=2)
    assert values(mine.rows()) == expected
    waiting.commit_transaction(60)
    while is_open(server("kafka").bootstrap, topic, 0) or is_open(server("kafka").bootstrap, topic, 1):
        pass
    committed = Counter({(b"v%d" % number, number % 2): 1 for number in range(40, 50)})
    assert values(mine.rows()) == expected + later + committed


def test_a_batch_may_hold_nothing_but_aborted_records(query: Callable[..., Query]) -> None:
    topic = new_topic()
    aborted(topic, range(50))
    mine = query(topic, maxOffsetsPerTrigger=7)
    assert [batch for batch in mine.run() if batch] == []
    assert mine.ends()[-1] == {topic: {0: 51}}
    expected = produced(topic, range(5))
    assert values(mine.rows()) == expected


def test_uncommitted_records_come_if_they_are_asked_for(query: Callable[..., Query]) -> None:
    topic = new_topic()
    expected = produced(topic, range(10))
    aborted(topic, range(10, 20))
    waiting = begun(topic, range(20, 25))
    mine = query(topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert values(mine.rows()) == expected + Counter({(b"v%d" % number, 0): 1 for number in range(10, 25)})
    waiting.abort_transaction(60)


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": "earliest"}, (0, 0)),
        ({"startingOffsets": "latest"}, (50, 50)),
        ({"startingOffsets": '{"TOPIC": {"0": -2, "1": -1}}'}, (0, 50)),
        ({"startingOffsets": '{"TOPIC": {"0": 7, "1": 49}}'}, (7, 49)),
        ({"startingTimestamp": EPOCH_MS + 20}, (10, 10)),
        ({"startingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {EPOCH_MS + 20}, "1": {EPOCH_MS + 41}}}}}'}, (10, 20)),
        ({"startingTimestamp": EPOCH_MS * 2, "startingOffsetsByTimestampStrategy": "latest"}, (50, 50)),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_query_begins_where_it_is_told(query: Callable[..., Query], options: dict[str, object], first: tuple[int, int]) -> None:
    topic = new_topic(2)
    produced(topic, range(100), partitions=2)
    mine = query(topic, **{key: str(value).replace("TOPIC", topic) for key, value in options.items()})
    mine.run()
    produced(topic, range(100, 110), partitions=2)
    found = mine.rows()
    assert Counter((row[3], row[4]) for row in found.elements()) == Counter(
        (number, offset) for number in (0, 1) for offset in range(first[number], 55)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"TOPIC": {"0": 7}}'},
        {"startingTimestamp": EPOCH_MS * 2},
        {"subscribe": "no-such-topic"},
    ],
    ids=str,
)
def test_a_beginning_that_is_not_there_is_told(query: Callable[..., Query], options: dict[str, object]) -> None:
    topic = new_topic(2)
    produced(topic, range(10), partitions=2)
    with pytest.raises(StreamingQueryException):
        query(topic, **{key: str(value).replace("TOPIC", topic) for key, value in options.items()}).run()


def test_batches_are_of_the_same_sizes_with_either(spark: SparkSession, tmp_path: Path) -> None:
    topic = new_topic(3)
    produced(topic, [number * 3 for number in range(10)], partitions=3)
    produced(topic, [number * 3 + 1 for number in range(73)], partitions=3)
    found = []
    for reader in ("spark", "python"):
        mine = Query(spark, reader, {"subscribe": topic, "maxOffsetsPerTrigger": 17}, tmp_path / reader)
        mine.run()
        found.append(mine.ends())
    assert found[0] == found[1]
    assert len(found[0]) > 4


def test_more_tasks_than_partitions(query: Callable[..., Query]) -> None:
    topic = new_topic(2)
    expected = produced(topic, range(1000), partitions=2)
    mine = query(topic, minPartitions=6)
    assert values(mine.rows()) == expected
    assert mine.partitions[0] >= 6


def test_what_came_meanwhile_comes_with_the_next_run(query: Callable[..., Query]) -> None:
    """`available_now` ends at what was there when it began, though a producer goes on."""
    topic = new_topic(2)
    expected = produced(topic, range(100), partitions=2)
    mine = query(topic, maxOffsetsPerTrigger=30)
    numbers = iter(range(100, 10_000, 10))

    def more() -> None:
        first = next(numbers)
        expected.update(produced(topic, range(first, first + 10), partitions=2))

    batches = mine.run(inside=more)
    assert sum(map(len, batches)) == 100
    assert values(mine.rows()) == expected


@pytest.mark.parametrize("after", [0, 2])
def test_a_batch_that_died_comes_again_as_it_was(query: Callable[..., Query], after: int) -> None:
    topic = new_topic(2)
    expected = produced(topic, range(60), partitions=2)
    mine = query(topic, maxOffsetsPerTrigger=20)
    with pytest.raises(StreamingQueryException):
        mine.run(inside=dying(after))
    planned = mine.ends()
    assert len(planned) == after + 1
    expected += produced(topic, range(60, 90), partitions=2)
    assert values(mine.rows()) == expected
    assert mine.ends()[: after + 1] == planned


def test_a_first_batch_that_died_begins_again_where_it_began(query: Callable[..., Query]) -> None:
    """`latest` is elsewhere by then."""
    topic = new_topic()
    produced(topic, range(10))
    mine = query(topic, startingOffsets="latest")
    with pytest.raises(StreamingQueryException):
        mine.run(inside=dying(0))
    expected = produced(topic, range(10, 25))
    assert values(mine.rows()) == expected


def test_a_batch_whose_commit_was_lost_comes_again(query: Callable[..., Query]) -> None:
    topic = new_topic()
    produced(topic, range(30))
    mine = query(topic, maxOffsetsPerTrigger=10)
    first = mine.run()
    forget_commit(mine.checkpoint, 2)
    produced(topic, range(30, 35))
    again = mine.run()
    assert again[0] == first[2]
    assert [row[4] for batch in again[1:] for row in batch] == [30, 31, 32, 33, 34]


def test_partitions_and_topics_that_were_added_are_read_from_their_first_record(query: Callable[..., Query]) -> None:
    prefix = unique("pattern")
    topic = str(server("kafka").topic(f"{prefix}.a", 1, retention_ms="-1"))
    server("kafka").topic(f"x{prefix}.a", 1, retention_ms="-1")
    expected = produced(topic, range(10))
    mine = query(subscribePattern=f"^{prefix}.*")
    assert values(mine.rows()) == expected
    server("kafka").admin().create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    server("kafka").await_led(topic, 2)
    expected += produced(topic, range(10, 20), partitions=2)
    other = str(server("kafka").topic(f"{prefix}.b", 1, retention_ms="-1"))
    expected += produced(other, range(500, 505))
    produced(f"x{prefix}.a", range(5))
    assert values(mine.rows()) == expected


def test_partitions_are_assigned(query: Callable[..., Query]) -> None:
    topic = new_topic(3)
    sent = produced(topic, range(30), partitions=3)
    mine = query(assign=json.dumps({topic: [0, 2]}))
    assert values(mine.rows()) == Counter({row: count for row, count in sent.items() if row[1] != 1})


def test_records_that_expired_end_the_query_or_are_passed_over(query: Callable[..., Query]) -> None:
    topic = new_topic()
    produced(topic, range(10))
    strict, lenient = query(topic), query(topic, on_gap="accept")
    for mine in (strict, lenient):
        mine.run()
    produced(topic, range(10, 40))
    delete_records(topic, {0: 25})
    with pytest.raises(StreamingQueryException):
        strict.run()
    assert [row[4] for batch in lenient.run() for row in batch] == list(range(25, 40))


def test_each_reader_goes_on_where_the_other_stopped(spark: SparkSession, tmp_path: Path) -> None:
    generator, topic = random.Random(SEED), new_topic(2)
    mine = Query(spark, "python", {"subscribe": topic, "maxOffsetsPerTrigger": 15}, tmp_path)
    expected: Counter[Seen] = Counter()
    for turn in range(4):
        mine.reader = "spark" if turn % 2 else "python"
        expected += produced(topic, range(turn * 100, turn * 100 + generator.randrange(20, 60)), partitions=2)
        aborted(topic, range(5), partitions=2)
        with pytest.raises(StreamingQueryException):
            mine.run(inside=dying(1))
        mine.reader = "python" if turn % 2 else "spark"
        assert values(mine.rows()) == expected
