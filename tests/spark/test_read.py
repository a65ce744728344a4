"""What `penstock.read` gives to Spark: just the listed files, with partition columns as they were delivered."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.unit.lake import Lake


def test_spark_reads_just_the_listed_files(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "a b")
    lake.run([0, 1])
    table = lake.pipeline.read()
    lake.run([2])
    frame = table.spark(spark)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("id", "bigint"),
        ("place", "string"),
        ("day", "date"),
    ]
    rows = sorted((row.id, row.place) for row in frame.collect())
    assert rows == sorted(zip(*(table.arrow().column(name).to_pylist() for name in ("id", "place")), strict=True))
    assert [row for row, _ in rows] == lake.ids(2)
    assert table.urls("spark")[0].startswith(f"file://{tmp_path}/a b/a/place=000%2Fx y/part-")


def test_spark_reads_a_batch_without_rows_of_an_account(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.run([0])
    for path in (*lake.listed("a"), *lake.listed("b")):
        path.unlink()
    assert lake.pipeline.read().spark(spark).collect() == []
    assert lake.pipeline.read().arrow().num_rows == 0
