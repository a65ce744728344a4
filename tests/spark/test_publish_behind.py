"""`publish_behind`: Spark goes on when a batch is decided, and the batch is published beside the next one."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.errors import PublishFailed
from penstock.run.batch_stager import BatchStager
from penstock.sink.sqlite import SqliteSink
from tests.spark.streams import numbers, put, run
from tests.spark.target import THREE_FILES, Target, of_three_files

pytestmark = pytest.mark.spark

EXPECTED = THREE_FILES
PAUSE_S = 0.5


target = pytest.fixture(of_three_files)


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, Callable[..., None]], None]:
    """Has something done before each call of a method."""

    def wrap(owner: Any, name: str, before: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            before(*args)
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    return wrap


def slow(*_: object) -> None:
    threading.Event().wait(PAUSE_S)


def test_a_batch_is_published_while_the_next_one_is_staged(spark: SparkSession, target: Target, around: Any) -> None:
    is_staging = {number: threading.Event() for number in range(3)}
    around(BatchStager, "stage", lambda _rows, batch: is_staging[batch.batch_id].set())

    def await_next(publication: Any) -> None:
        number = publication.batch.batch_id
        assert number == 2 or is_staging[number + 1].wait(60)

    around(SqliteSink, "publish", await_next)
    query = target.deliver(numbers(spark, target.root), publish_behind=True)
    assert target.accounts() == target.rows() == EXPECTED
    summary = query.summary()
    assert summary is not None
    assert (summary.batches, summary.rows_in, summary.sinks["table"].rows) == (3, 3, 3)
    assert [row.batch_id for row in query.history()] == [2, 1, 0, None]


def test_an_idle_query_ends_with_what_kept_its_last_batch_from_being_published(
    spark: SparkSession, target: Target, around: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No further batch comes that would tell; and the next start publishes it."""

    def refuse(publication: Any) -> None:
        if publication.batch.batch_id == 3:
            raise PublishFailed("The target is gone.", remedy="Bring it back.")

    target.deliver(numbers(spark, target.root))
    put(target.root / "in", "3.csv", 3)
    around(SqliteSink, "publish", refuse)
    query = target.delivery(publish_behind=True).start(numbers(spark, target.root).writeStream)
    with pytest.raises(PublishFailed, match="gone"):
        query.awaitTermination(60)
    assert not query.isActive
    monkeypatch.undo()
    target.deliver(numbers(spark, target.root))
    assert target.accounts() == target.rows() == EXPECTED + Counter([(3,)])


def test_a_failure_of_the_last_batch_is_raised_by_who_awaits_the_query(
    spark: SparkSession, target: Target, around: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def refuse_late(publication: Any) -> None:
        if publication.batch.batch_id == 2:
            assert is_over.wait(60)
            raise PublishFailed("The target is gone.", remedy="Bring it back.")

    around(SqliteSink, "publish", refuse_late)
    query = target.start(numbers(spark, target.root), publish_behind=True)
    while query.isActive:
        threading.Event().wait(0.05)
    is_over.set()
    with pytest.raises(PublishFailed, match="gone"):
        query.awaitTermination()
    assert target.rows().total() == 2
    monkeypatch.undo()
    target.deliver(numbers(spark, target.root))
    assert target.accounts() == target.rows() == EXPECTED


def test_who_waits_for_spark_finds_the_rows(spark: SparkSession, target: Target, around: Any) -> None:
    around(SqliteSink, "publish", slow)
    query = target.delivery(publish_behind=True).start(numbers(spark, target.root).writeStream)
    query.processAllAvailable()
    assert target.rows() == EXPECTED
    put(target.root / "in", "3.csv", 3)
    query.processAllAvailable()
    assert target.rows() == EXPECTED + Counter([(3,)])
    query.stop()


def test_a_query_that_is_stopped_has_published_what_it_decided(spark: SparkSession, target: Target, around: Any) -> None:
    is_publishing = threading.Event()

    def publishing(publication: Any) -> None:
        if publication.batch.batch_id == 2:
            is_publishing.set()
            slow()

    around(SqliteSink, "publish", publishing)
    query = target.delivery(publish_behind=True).start(numbers(spark, target.root).writeStream)
    assert is_publishing.wait(60)
    query.stop()
    assert target.rows() == EXPECTED


def test_no_more_batches_run_than_were_asked_for(spark: SparkSession, target: Target, around: Any) -> None:
    around(SqliteSink, "publish", slow)
    delivery = target.delivery(publish_behind=True)
    query = delivery.start(numbers(spark, target.root).writeStream, batches=2)
    query.run_until(lambda: False, grace_s=60)
    assert target.rows().total() == 2


def test_a_query_that_nobody_awaits_publishes_at_once(spark: SparkSession, target: Target, around: Any) -> None:
    """As a plain function for foreachBatch nothing tells a delivery that the query has ended."""
    names = list[str]()
    around(SqliteSink, "publish", lambda *_: names.append(threading.current_thread().name))
    delivery = target.delivery(publish_behind=True)
    run(numbers(spark, target.root), Path(delivery.checkpoint), delivery)
    delivery.release()
    assert len(names) == 3
    assert not any(name.startswith("penstock-behind") for name in names)
    assert target.rows() == EXPECTED
