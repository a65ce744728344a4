"""Spark runs a batch again; nothing in any sink changes."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import BatchGap, CheckpointMissing, CheckpointReplaced, OffsetsConflict
from tests.spark.streams import forget_commit, numbers, put
from tests.spark.target import Target

pytestmark = pytest.mark.spark


@pytest.fixture
def target(tmp_path: Path) -> Target:
    for number in range(4):
        put(tmp_path / "in", f"{number}.csv", number, number, number + 10)
    return Target(tmp_path)


EXPECTED = Counter({(value,): count for number in range(4) for value, count in ((number, 2), (number + 10, 1))})


def test_every_row_arrives_once_in_every_sink(spark: SparkSession, target: Target) -> None:
    target.deliver(numbers(spark, target.root))
    assert target.accounts() == EXPECTED
    assert target.account("odd") == Counter({row: count for row, count in EXPECTED.items() if row[0] % 2})
    assert target.rows() == EXPECTED


def test_five_replays_of_the_newest_batch_change_nothing(spark: SparkSession, target: Target) -> None:
    target.deliver(numbers(spark, target.root))
    files = target.files()
    for _ in range(5):
        forget_commit(target.checkpoint, 3)
        query = target.deliver(numbers(spark, target.root))
        summary = query.summary()
        assert summary is not None
        assert {name: share.already_committed for name, share in summary.sinks.items()} == {"lake": 1, "table": 1}
        assert (summary.batches, summary.rows_in) == (0, 0)
    assert target.files() == files
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


def test_drop_in_form_recovers_with_its_first_batch(spark: SparkSession, target: Target) -> None:
    def run() -> None:
        delivery = target.delivery()
        writer = numbers(spark, target.root).writeStream.foreachBatch(delivery)
        writer.option("checkpointLocation", delivery.checkpoint).trigger(availableNow=True).start().awaitTermination()
        delivery.release()

    run()
    forget_commit(target.checkpoint, 3)
    put(target.root / "in", "4.csv", 99)
    run()
    assert (target.accounts(), target.rows()) == (EXPECTED + Counter([(99,)]), EXPECTED + Counter([(99,)]))


@pytest.mark.parametrize("location", [None, "other"], ids=["forgotten", "another"])
def test_drop_in_form_with_a_checkpoint_elsewhere_is_refused(spark: SparkSession, target: Target, location: str | None) -> None:
    """Spark takes a temporary one where the option is missing; its batches are not those of `delivery.checkpoint`."""
    target.deliver(numbers(spark, target.root))
    put(target.root / "other_in", "0.csv", 99)
    delivery = target.delivery()
    writer = spark.readStream.schema("n INT").csv(str(target.root / "other_in")).writeStream.foreachBatch(delivery)
    if location is not None:
        writer = writer.option("checkpointLocation", str(target.root / location))
    query = penstock.Query(writer.trigger(availableNow=True).start(), delivery)
    with pytest.raises(CheckpointReplaced, match="another directory"):
        query.awaitTermination()
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


def test_deleted_checkpoint_is_refused_and_then_adopted(spark: SparkSession, target: Target) -> None:
    target.deliver(numbers(spark, target.root))
    shutil.rmtree(target.checkpoint)
    with pytest.raises(CheckpointMissing, match="batch 4"):
        target.deliver(numbers(spark, target.root))
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


def test_checkpoint_of_another_query_is_refused(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    target.deliver(numbers(spark, target.root))
    other = Target(tmp_path / "other")
    put(tmp_path / "other/in", "0.csv", 7)
    other.deliver(numbers(spark, other.root))
    shutil.rmtree(target.checkpoint)
    shutil.copytree(other.checkpoint, target.checkpoint)
    with pytest.raises(CheckpointReplaced, match="is of query"):
        target.deliver(numbers(spark, target.root))
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


def test_older_copy_that_plans_the_same_batches_is_exact(spark: SparkSession, target: Target) -> None:
    """The copy plans batches 2 and 3 anew from the same files: recognised by their files, not delivered again."""
    for number in (2, 3):
        (target.root / "in" / f"{number}.csv").rename(target.root / f"{number}.later")
    target.deliver(numbers(spark, target.root))
    shutil.copytree(target.checkpoint, target.root / "older")
    for number in (2, 3):
        (target.root / f"{number}.later").rename(target.root / "in" / f"{number}.csv")
        target.deliver(numbers(spark, target.root))
    shutil.rmtree(target.checkpoint)
    (target.root / "older").rename(target.checkpoint)
    target.deliver(numbers(spark, target.root))
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)


def test_older_copy_that_plans_other_files_is_refused(spark: SparkSession, target: Target) -> None:
    """Its offsets are equal to the decided ones (an index): only the list of files tells the difference."""
    target.deliver(numbers(spark, target.root))
    shutil.copytree(target.checkpoint, target.root / "older")
    put(target.root / "in", "4.csv", 50)
    target.deliver(numbers(spark, target.root))
    put(target.root / "in", "5.csv", 60)
    shutil.rmtree(target.checkpoint)
    (target.root / "older").rename(target.checkpoint)
    with pytest.raises(OffsetsConflict, match="batch 4"):
        target.deliver(numbers(spark, target.root, per_trigger=2))
    assert target.rows() == EXPECTED + Counter([(50,)])


def test_ledger_lost_beside_a_checkpoint_that_goes_on_is_refused(spark: SparkSession, target: Target) -> None:
    target.deliver(numbers(spark, target.root))
    for file in (target.root / "home").glob("ledger.db*"):
        file.unlink()
    with pytest.raises(BatchGap, match="empty"):
        target.deliver(numbers(spark, target.root))
    assert (target.accounts(), target.rows()) == (EXPECTED, EXPECTED)
