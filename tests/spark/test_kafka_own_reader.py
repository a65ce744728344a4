"""What only Penstock's own reader of Kafka notices, and what it says: on Spark and a real broker."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.errors import Usage
from tests.crash.commandline import penstock
from tests.servers.fixtures import server, unique
from tests.servers.kafka import records
from tests.spark.kafka_query import Query, delete_records, new_topic, produced


@pytest.fixture
def own(spark: SparkSession, tmp_path: Path) -> Callable[..., Query]:
    return lambda topic, **options: Query(spark, "python", {"subscribe": topic, **options}, tmp_path / unique("checkpoint"))


def recreate(topic: str, count: int) -> None:
    running = server("kafka")
    running.remove(topic)
    while topic in running.admin().list_topics(timeout=60).topics:
        pass
    running.topic(topic, retention_ms="-1")
    produced(topic, range(1000, 1000 + count))


@pytest.mark.parametrize("count", [3, 90], ids=["shorter", "longer"])
def test_a_topic_that_was_created_again_is_not_gone_on_with(own: Callable[..., Query], count: int) -> None:
    topic = new_topic()
    produced(topic, range(40))
    mine = own(topic)
    mine.run()
    recreate(topic, count)
    with pytest.raises(StreamingQueryException, match="was deleted and created again: its id was"):
        mine.run()


def test_a_topic_that_is_created_again_under_a_planned_batch_is_not_read(own: Callable[..., Query]) -> None:
    topic = new_topic()
    produced(topic, range(40))
    mine = own(topic)
    with pytest.raises(StreamingQueryException, match=r"of which a batch was planned, has the id .* now, and had"):
        mine.run(inside=lambda: recreate(topic, 90))


def test_records_that_go_under_a_planned_batch_end_it(own: Callable[..., Query]) -> None:
    topic = new_topic()
    produced(topic, range(40))
    with pytest.raises(StreamingQueryException, match="the first that Kafka still has is 7"):
        own(topic).run(inside=lambda: delete_records(topic, {0: 7}))


def test_a_broker_that_says_nothing_ends_a_batch_with_a_word(own: Callable[..., Query]) -> None:
    topic = new_topic()
    produced(topic, range(40))
    mine = own(topic, **{"kafkaConsumer.pollTimeoutMs": 2000, "kafka.request.timeout.ms": 2000})
    with thawed_again(), pytest.raises(StreamingQueryException, match=r"does not answer|sent nothing of topic"):
        mine.run(inside=server("kafka").freeze)
    assert [row[4] for batch in mine.run() for row in batch] == list(range(40))


@contextmanager
def thawed_again() -> Iterator[None]:
    """Whatever happens to the broker meanwhile."""
    try:
        yield
    finally:
        server("kafka").thaw()


def test_a_name_that_nobody_has_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    mine = Query(spark, "python", {"subscribe": "nobody-has-this"}, tmp_path)
    with pytest.raises(
        StreamingQueryException, match=r"penstock\.errors\.Failed: Topic 'nobody-has-this' of source 's' does not exist"
    ):
        mine.run()


def test_what_the_reader_cannot_be_told_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"kafka\.my\.plugin has no equivalent in librdkafka"):
        Query(spark, "python", {"subscribe": "any", "kafka.my.plugin": "x"}, tmp_path).frame()


RULES = """\
pipeline: ruled
home: ./state
sources:
  events:
    format: kafka
    reader: python
    options: {{kafka.bootstrap.servers: "{bootstrap}", subscribe: {topic}, startingOffsets: earliest, maxOffsetsPerTrigger: 15}}
    expect:
      third: {{sql: "offset % 3 <> 0", on_violation: quarantine}}
      fourth: {{sql: "offset % 4 <> 0", on_violation: drop}}
transform:
  sql: SELECT partition, offset FROM events
sinks:
  table: {{type: sqlite, url: "sqlite:///table.db", table: events}}
quarantine: ./quarantine
trigger: {{available_now: true}}
"""


def test_rules_read_its_records_once_more_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    topic = new_topic()
    produced(topic, range(40))
    (tmp_path / "p.yaml").write_text(RULES.format(bootstrap=server("kafka").bootstrap, topic=topic))
    done = penstock("run", "p.yaml", "--json", directory=tmp_path)
    assert done.code == 0, str(done)
    every = {(each.partition(), each.offset()) for each in records(server("kafka").bootstrap, topic)}
    with closing(sqlite3.connect(tmp_path / "table.db")) as table:
        found = table.execute("SELECT partition, offset FROM events").fetchall()
    aside = ds.dataset(list((tmp_path / "quarantine").rglob("*.parquet"))).to_table(["partition", "offset", "rule"]).to_pylist()
    assert sorted(found) == sorted((partition, offset) for partition, offset in every if offset % 3 and offset % 4)
    assert sorted((row["partition"], row["offset"]) for row in aside) == sorted(at for at in every if at[1] % 3 == 0)
    assert {row["rule"] for row in aside} == {"third"}
    assert penstock("verify", "p.yaml", directory=tmp_path).code == 0
