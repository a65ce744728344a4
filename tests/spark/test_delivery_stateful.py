"""Stateful queries, several sources and all output modes, each with a replay of a decided batch."""

import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name Spark's own documentation uses

import penstock
from penstock.errors import InputChanged
from penstock.run.operations import recover
from tests.spark.streams import forget_commit, put
from tests.spark.target import Target

pytestmark = pytest.mark.spark


def stream(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).csv(str(folder))


def table(root: Path, *, write: str, key: tuple[str, ...] = ()) -> Target:
    return Target(root, table=penstock.SQLite(url=f"sqlite:///{root}/warehouse.db", table="numbers", write=write, key=key))


def newest_batch(target: Target) -> int:
    return max(int(entry.name) for entry in (target.checkpoint / "commits").iterdir() if entry.name.isdigit())


def lose_state_of(target: Target, batch_id: int) -> None:
    """What a driver leaves that dies after the batch was published and before its state was saved."""
    forget_commit(target.checkpoint, batch_id)
    for pattern in (f"state/*/*/{batch_id + 1}.*", f"state/*/*/.{batch_id + 1}.*", f"state/*/*/*/{batch_id + 1}.*"):
        for file in target.checkpoint.glob(pattern):
            file.unlink()


def test_deduplication_survives_a_replay_whose_state_was_lost(spark: SparkSession, tmp_path: Path) -> None:
    target = Target(tmp_path)

    def run() -> None:
        target.deliver(stream(spark, tmp_path / "in", "n INT").dropDuplicates(["n"]))

    put(tmp_path / "in", "0.csv", 1, 2)
    put(tmp_path / "in", "1.csv", 2, 3)
    run()
    lose_state_of(target, newest_batch(target))
    put(tmp_path / "in", "2.csv", 1, 3, 4)
    run()
    expected = Counter([(1,), (2,), (3,), (4,)])
    assert (target.accounts(), target.rows()) == (expected, expected)


def test_complete_mode_replaces_the_table(spark: SparkSession, tmp_path: Path) -> None:
    target = table(tmp_path, write="replace")

    def run() -> None:
        counts = stream(spark, tmp_path / "in", "n INT").groupBy("n").agg(F.count("*").alias("many"))
        target.deliver(counts, mode="complete")

    put(tmp_path / "in", "0.csv", 1, 1, 2)
    put(tmp_path / "in", "1.csv", 2)
    run()
    assert target.rows() == Counter([(1, 2), (2, 2)])
    forget_commit(target.checkpoint, newest_batch(target))
    put(tmp_path / "in", "2.csv", 3)
    run()
    assert target.rows() == Counter([(1, 2), (2, 2), (3, 1)])


def test_a_replaced_table_that_was_taken_out_for_a_while_is_not_emptied_by_the_start(spark: SparkSession, tmp_path: Path) -> None:
    """The newest decision holds nothing for it because it was not there, not because the result was empty."""
    target = table(tmp_path, write="replace")
    other = penstock.SQLite(url=f"sqlite:///{tmp_path}/other.db", table="numbers", write="replace")

    def run(**sinks: object) -> None:
        counts = stream(spark, tmp_path / "in", "n INT").groupBy("n").agg(F.count("*").alias("many"))
        target.deliver(counts, mode="complete", sinks={"other": other, **sinks})

    put(tmp_path / "in", "0.csv", 1, 2)
    run(**target.sinks)
    recover(target.delivery(sinks={"other": other, **target.sinks}).plan)
    put(tmp_path / "in", "1.csv", 1)
    run()
    run(**target.sinks)
    assert target.rows() == Counter([(1, 1), (2, 1)])
    put(tmp_path / "in", "2.csv", 1)
    run(**target.sinks)
    assert target.rows() == Counter([(1, 3), (2, 1)])


def test_update_mode_upserts_what_changed(spark: SparkSession, tmp_path: Path) -> None:
    target = table(tmp_path, write="upsert", key=("n",))

    def run() -> None:
        counts = stream(spark, tmp_path / "in", "n INT").groupBy("n").agg(F.count("*").alias("many"))
        target.deliver(counts, mode="update")

    put(tmp_path / "in", "0.csv", 1, 2)
    put(tmp_path / "in", "1.csv", 2, 3)
    run()
    forget_commit(target.checkpoint, newest_batch(target))
    put(tmp_path / "in", "2.csv", 3, 3)
    run()
    assert target.rows() == Counter([(1, 1), (2, 2), (3, 3)])


def test_input_that_is_gone_once_delivered_does_not_get_lost_from_the_state(spark: SparkSession, tmp_path: Path) -> None:
    """Rows are in the table, so somebody archives their file; the driver died before Spark logged the batch's end."""
    target = table(tmp_path, write="upsert", key=("n",))

    def run() -> None:
        counts = stream(spark, tmp_path / "in", "n INT").groupBy("n").agg(F.count("*").alias("many"))
        target.deliver(counts, mode="update")

    put(tmp_path / "in", "0.csv", 1, 2)
    run()
    delivered = put(tmp_path / "in", "1.csv", 2, 3)
    run()
    forget_commit(target.checkpoint, newest_batch(target))
    archived = delivered.rename(tmp_path / "1.csv")
    put(tmp_path / "in", "2.csv", 2, 3)
    with pytest.raises(InputChanged, match=r"1\.csv is gone") as caught:
        run()
    assert "are delivered" in caught.value.remedy
    assert target.rows() == Counter([(1, 1), (2, 2), (3, 1)])
    archived.rename(delivered)
    run()
    assert target.rows() == Counter([(1, 1), (2, 3), (3, 2)])


def test_windowed_aggregation_in_append_mode(spark: SparkSession, tmp_path: Path) -> None:
    target = table(tmp_path, write="append")

    def run() -> None:
        events = stream(spark, tmp_path / "in", "n INT, at TIMESTAMP").withWatermark("at", "1 minute")
        windows = events.groupBy(F.window("at", "1 minute")).agg(F.sum("n").alias("total"))
        target.deliver(windows.select(F.col("window.start").cast("string").alias("start"), "total"))

    for number in range(4):
        lines = [f"{number},2024-01-01T00:0{number}:{second}Z" for second in (10, 20)]
        file = put(tmp_path / "in", f"{number}.csv", *lines)
        os.utime(file, (file.stat().st_mtime - 10 + number,) * 2)  # Spark reads in this order; late rows would be dropped
    run()
    forget_commit(target.checkpoint, newest_batch(target))
    put(tmp_path / "in", "9.csv", "100,2024-01-01T01:00:00Z")
    run()
    assert target.rows() == Counter((f"2024-01-01 00:0{number}:00", 2 * number) for number in range(4))


def test_stream_stream_join_of_two_sources(spark: SparkSession, tmp_path: Path) -> None:
    target = table(tmp_path, write="append")

    def run() -> None:
        left = stream(spark, tmp_path / "left", "n INT, at TIMESTAMP").withWatermark("at", "1 hour")
        right = stream(spark, tmp_path / "right", "m INT, bt TIMESTAMP").withWatermark("bt", "1 hour")
        joined = left.join(right, F.expr("n = m AND bt BETWEEN at AND at + INTERVAL 10 MINUTES"))
        target.deliver(joined.select("n"), sources=("left", "right"))

    put(tmp_path / "left", "0.csv", "1,2024-01-01T00:00:00Z", "2,2024-01-01T00:00:00Z")
    put(tmp_path / "right", "0.csv", "1,2024-01-01T00:05:00Z")
    run()
    forget_commit(target.checkpoint, newest_batch(target))
    put(tmp_path / "right", "1.csv", "2,2024-01-01T00:06:00Z")
    run()
    assert target.rows() == Counter([(1,), (2,)])


def test_union_of_two_sources(spark: SparkSession, tmp_path: Path) -> None:
    target = Target(tmp_path)
    put(tmp_path / "a", "0.csv", 1, 1)
    put(tmp_path / "b", "0.csv", 2)
    put(tmp_path / "b", "1.csv", 1)
    both = stream(spark, tmp_path / "a", "n INT").union(stream(spark, tmp_path / "b", "n INT"))
    query = target.deliver(both, sources=("a", "b"))
    assert target.accounts() == target.rows() == Counter([(1,), (1,), (1,), (2,)])
    assert [offsets.source for offsets in query.offsets(0)] == ["a", "b"]
