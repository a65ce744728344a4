"""Two ways through the staging pass, one content; and a session that is left as it was."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.core.model import NEWEST_ROW_DIGEST, BatchId, Generation, PipelineName, SinkName
from penstock.errors import PenstockError, StagedDataLost
from penstock.sink.memory import MemorySink
from penstock.stage.batch import stage_batch
from penstock.stage.path import DRIVER_ROWS, BatchSize, StagePath
from tests.spark.lake import SMALL, Lake, content

PIPELINE = PipelineName("paths")
ROUTE = "element_at(array('a', 'b', 'c'), CAST(pmod(hash(`id`), 3) AS INT) + 1)"
BY_TEXT = "CAST(`r0` AS STRING)"
ODD_NAMES = ["id", "a.b", "c d", "`tick`", "h", "r0", "c0", "__penstock_hash", "päße", "x=y/z"]


def odd_rows(spark: SparkSession, rows: int = 500) -> DataFrame:
    """Column names that break quoting, or that a careless pass would use itself; values of many types."""
    return spark.range(0, rows, 1, 3).selectExpr(
        "id",
        "id * 2 AS `a.b`",
        "named_struct('x y', array(id, NULL), 'm', map('k', id)) AS `c d`",
        "CAST(id AS DECIMAL(22,3)) AS ```tick```",
        "timestamp_micros(id) AS h",
        "CAST(id AS STRING) AS r0",
        "id % 2 = 0 AS c0",
        "CAST(NULL AS DATE) AS __penstock_hash",
        "CAST(CAST(id AS STRING) AS BINARY) AS `päße`",
        "make_dt_interval(CAST(id AS INT), 1, 1, 1.000001) AS `x=y/z`",
    )


@pytest.mark.parametrize("previous", [None, SMALL], ids=["distributed", "driver"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_both_paths_deliver_the_same_rows(spark: SparkSession, tmp_path: Path, previous: BatchSize | None, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = odd_rows(spark)
        assert rows.columns == ODD_NAMES
        lake = Lake(tmp_path, "a", "b", "c", route=ROUTE)
        staged = lake.deliver(rows, previous=previous)
        assert staged.path is (StagePath.DISTRIBUTED if previous is None else StagePath.DRIVER)
        assert staged.rows_in == 500
        shown = lake.read(spark)
        assert dict(shown.dtypes) == dict(rows.dtypes)
        assert content(shown) == content(rows)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("small_input", [True, False], ids=["whole", "projected"])
@pytest.mark.parametrize("previous", [None, SMALL], ids=["distributed", "driver"])
def test_what_the_driver_staged_is_not_read_back(
    spark: SparkSession, tmp_path: Path, previous: BatchSize | None, *, small_input: bool
) -> None:
    """The file is for the next process. What tasks staged is only there."""
    sink = MemorySink(name=SinkName("kept"), spool=str(tmp_path / "spool"))
    sink.prepare(pipeline=PIPELINE, schema=None)
    rows = odd_rows(spark, 10_000).selectExpr("id", "sha2(CAST(id AS STRING), 512) AS noise")
    staged = stage_batch(
        rows,
        sinks=[sink],
        generation=Generation(1),
        batch_id=BatchId(0),
        row_digest=NEWEST_ROW_DIGEST,
        previous=previous,
        small_input=small_input,
    )
    assert all(piece.inline is None for piece in staged.pieces)
    for file in (tmp_path / "spool").rglob("*.arrow"):
        file.write_bytes(bytes(file.stat().st_size))
    if previous is None:
        with pytest.raises(StagedDataLost):
            list(sink._spool.read(staged.pieces, pipeline=PIPELINE))
        return
    found = pa.Table.from_batches(sink._spool.read(staged.pieces, pipeline=PIPELINE))
    assert found.to_pylist() == [row.asDict() for row in rows.collect()]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_rows_fetched_as_a_whole_are_the_same_rows(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Routed and hashed by the driver: `verify` inside of `deliver` compares with the hash that it computes itself."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = odd_rows(spark, 7).where("id < 3")
        lake = Lake(tmp_path, "0", "1", "2", route=BY_TEXT)
        staged = lake.deliver(rows, previous=SMALL, small_input=True)
        assert staged.path is StagePath.DRIVER
        assert {piece.account for piece in staged.pieces} == {"0", "1", "2"}
        assert dict(lake.read(spark).dtypes) == dict(rows.dtypes)
        assert content(lake.read(spark)) == content(rows)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_guess_counts_rows_on_the_way(spark: SparkSession, tmp_path: Path) -> None:
    """Nobody measured a batch of this run, so small input proves nothing: here each row became thirty thousand."""
    rows = spark.range(0, 2, 1, 2).selectExpr("explode(sequence(1, 30000)) AS id")
    guess = BatchSize(rows=2, size_bytes=10_000_000, row_bytes=4_000_000, measured=False)
    assert Lake(tmp_path).stage(rows, previous=guess, small_input=True).path is StagePath.DISTRIBUTED
    measured = BatchSize(rows=2, size_bytes=10_000_000, row_bytes=4_000_000)
    assert Lake(tmp_path / "b").stage(rows, previous=measured, small_input=True).path is StagePath.DRIVER


def test_a_route_that_spark_must_compute_is_not_left_to_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 60, 1, 2).selectExpr("id", "CAST(id % 3 AS INT) AS n")
    lake = Lake(tmp_path, "0", "1", "2", route="CAST(`n` AS STRING)")
    lake.deliver(rows, previous=SMALL, small_input=True)
    assert content(lake.read(spark)) == content(rows)


def test_digests_do_not_depend_on_path_or_partitioning(spark: SparkSession, tmp_path: Path) -> None:
    rows = odd_rows(spark)
    digests = set()
    for number, (frame, previous, small) in enumerate(
        [(rows, None, False), (rows, SMALL, False), (rows, SMALL, True), (rows.repartition(5), None, True)]
    ):
        staged = Lake(tmp_path / str(number)).stage(frame, previous=previous, small_input=small)
        digests.add(sum(piece.totals.digest for piece in staged.pieces) % 2**64)
    assert len(digests) == 1


def test_a_batch_that_is_too_large_for_the_driver_is_staged_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 30_000, 1, 2).selectExpr("id", "repeat('x', 10) AS s")
    lake = Lake(tmp_path)
    narrow = BatchSize(rows=10, size_bytes=10_000_000, row_bytes=4_000_000)
    staged = lake.deliver(rows, previous=narrow)
    assert staged.path is StagePath.DISTRIBUTED
    assert staged.rows_in == 30_000
    assert content(lake.read(spark)) == content(rows)
    assert lake.staged() == []


def test_what_spark_cannot_fetch_is_staged_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's toArrow() fails on a null struct of fields that are never null."""
    rows = spark.range(100).selectExpr("id", "IF(id % 3 = 0, NULL, named_struct('x', named_struct('y', array('z')))) AS deep")
    for name, small in (("counted", False), ("whole", True)):
        lake = Lake(tmp_path / name)
        assert lake.deliver(rows, previous=SMALL, small_input=small).path is StagePath.DISTRIBUTED
    assert content(lake.read(spark)) == content(rows)


def test_a_large_batch_before_means_tasks(spark: SparkSession, tmp_path: Path) -> None:
    large = BatchSize(rows=DRIVER_ROWS + 1, size_bytes=1000, row_bytes=10)
    assert Lake(tmp_path).stage(spark.range(3).select("id"), previous=large).path is StagePath.DISTRIBUTED


@pytest.mark.parametrize("previous", [None, SMALL], ids=["distributed", "driver"])
def test_nothing_stages_nothing(spark: SparkSession, tmp_path: Path, previous: BatchSize | None) -> None:
    lake = Lake(tmp_path)
    staged = lake.stage(spark.range(0).select("id"), previous=previous)
    assert staged.pieces == ()
    assert staged.rows_in == 0
    assert lake.staged() == []


def test_the_session_keeps_its_settings(spark: SparkSession, tmp_path: Path) -> None:
    keys = ["spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"]
    assert [spark.conf.get(key, None) for key in keys] == [None, None]
    Lake(tmp_path).stage(spark.range(10).select("id"))
    assert [spark.conf.get(key, None) for key in keys] == [None, None]
    spark.conf.set(keys[0], "777")
    try:
        with pytest.raises(PenstockError):
            Lake(tmp_path / "x", "a", "b", route="'nowhere'").stage(spark.range(10).select("id"))
        assert [spark.conf.get(key, None) for key in keys] == ["777", None]
    finally:
        spark.conf.unset(keys[0])


def test_one_pass_feeds_all_sinks(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.core.model import BatchId, Generation
    from penstock.stage.batch import stage_batch

    counted = spark.sparkContext.accumulator(0)

    def count(batches):
        for batch in batches:
            counted.add(batch.num_rows)
            yield batch

    rows = spark.range(0, 1000, 1, 2).mapInArrow(count, "id long")
    lakes = [Lake(tmp_path / name, "a", "b", "c", route=ROUTE, name=name) for name in ("north", "south")]
    lakes.append(Lake(tmp_path / "one"))
    for lake in lakes:
        lake.sink.prepare(pipeline=lake.sink._pipeline, schema=rows.schema.json())
    sinks = [lake.sink for lake in lakes]
    staged = stage_batch(rows, sinks=sinks, generation=Generation(1), batch_id=BatchId(0), row_digest=NEWEST_ROW_DIGEST)
    assert counted.value == 1000
    assert staged.rows_in == 1000
    assert len(staged.pieces) == 2 * (3 + 3 + 1)
    assert sum(piece.totals.rows for piece in staged.pieces) == 3000
