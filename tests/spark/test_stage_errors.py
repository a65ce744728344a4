"""What goes wrong in the pass reaches the driver as the one sentence that the task said, with its class and its remedy."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.core.faults import arm
from penstock.core.model import NEWEST_ROW_DIGEST
from penstock.errors import Retryable, StageFailed, Usage
from penstock.stage.path import BatchSize
from tests.spark.lake import SMALL, Lake

each_path = pytest.mark.parametrize("previous", [None, SMALL], ids=["distributed", "driver"])


@each_path
def test_a_route_to_nowhere(spark: SparkSession, tmp_path: Path, previous: BatchSize | None) -> None:
    lake = Lake(tmp_path, "a", "b", route="IF(id = 7, 'no | [such] account', 'a')")
    with pytest.raises(StageFailed) as told:
        lake.stage(spark.range(100).select("id"), previous=previous)
    assert told.value.message == "A row routes to the account 'no | [such] account', but sink 'lake' has a, b."
    assert told.value.remedy.startswith("Correct the route, add the account, or let `unrouted` name an account")


@each_path
def test_a_route_that_is_null_may_go_to_the_named_account(
    spark: SparkSession, tmp_path: Path, previous: BatchSize | None
) -> None:
    lake = Lake(tmp_path, "a", "b", route="IF(id % 2 = 0, 'a', NULL)", unrouted="b")
    lake.deliver(spark.range(100).select("id"), previous=previous)
    assert spark.read.parquet(str(lake.root("b"))).count() == 50


@each_path
def test_a_partition_name_that_no_disk_takes(spark: SparkSession, tmp_path: Path, previous: BatchSize | None) -> None:
    lake = Lake(tmp_path, partition_by=["s"])
    rows = spark.range(10).selectExpr("id", "IF(id = 3, repeat('z', 300), 'x') AS s")
    with pytest.raises(StageFailed, match="partition column 's' makes a directory name of 302 bytes"):
        lake.stage(rows, previous=previous)
    assert list(lake.root().rglob("*.parquet")) == []


@each_path
def test_a_row_that_spark_cannot_compute(spark: SparkSession, tmp_path: Path, previous: BatchSize | None) -> None:
    rows = spark.range(100).selectExpr("IF(id = 50, raise_error('row fifty is bad'), id) AS id")
    with pytest.raises(StageFailed, match=r"Spark could not compute the batch: .*row fifty is bad"):
        Lake(tmp_path).stage(rows, previous=previous)


@each_path
def test_a_corrupt_source_file(spark: SparkSession, tmp_path: Path, previous: BatchSize | None) -> None:
    spark.range(10).write.parquet(str(tmp_path / "in"))
    bad = next((tmp_path / "in").glob("*.parquet"))
    bad.write_bytes(bad.read_bytes()[:-20])
    (tmp_path / "in" / f".{bad.name}.crc").unlink()
    rows = spark.read.schema("id LONG").parquet(str(tmp_path / "in"))
    with pytest.raises(StageFailed, match=bad.name):
        Lake(tmp_path).stage(rows, previous=previous)


@each_path
@pytest.mark.parametrize("point", ["stage.start", "stage.report"])
def test_a_fault_in_a_task_keeps_its_class(spark: SparkSession, tmp_path: Path, previous: BatchSize | None, point: str) -> None:
    lake = Lake(tmp_path)
    rows = spark.range(0, 100, 1, 2).select("id")
    arm(f"{point}=error")
    try:
        with pytest.raises(Retryable) as told:
            lake.stage(rows, previous=previous)
    finally:
        arm("")
    assert type(told.value) is Retryable
    assert told.value.message == f"{point} failed before it did anything."
    lake.deliver(rows, previous=previous)


def test_a_fault_while_the_driver_waits(spark: SparkSession, tmp_path: Path) -> None:
    arm("stage.collect=error")
    try:
        with pytest.raises(Retryable):
            Lake(tmp_path).stage(spark.range(3).select("id"))
    finally:
        arm("")


def test_columns_that_cannot_be_staged(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.core.model import BatchId
    from penstock.stage.batch import stage_batch
    from tests.spark.lake import ONE_GENERATION

    for sql, told in (
        ("SELECT 1 AS a, 2 AS a", "two columns named 'a'"),
        ("SELECT parse_json('1') AS v", "has the Spark type variant"),
    ):
        with pytest.raises((Usage, StageFailed), match=told):
            stage_batch(
                spark.sql(sql),
                sinks=[Lake(tmp_path).sink],
                generation=ONE_GENERATION,
                batch_id=BatchId(0),
                row_digest=NEWEST_ROW_DIGEST,
            )


def test_a_full_buffer_of_the_driver_is_no_error(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 200_000, 1, 1).select("id")
    assert Lake(tmp_path).deliver(rows, previous=SMALL).rows_in == 200_000
