"""Partition directories as Spark itself reads them: every hostile text, and the other types."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import StageFailed
from penstock.stage.path import BatchSize
from penstock.testing.conformance.rig import HOSTILE
from tests.spark.lake import SMALL, Lake, content

TEXTS = [
    text
    for text in (*HOSTILE, "a._COPYING_", "{x}[y]^", "é" * 120, "+1", "2024-01-01", "Null", "nan")
    if text not in {"", "__HIVE_DEFAULT_PARTITION__"}
]
each_path = pytest.mark.parametrize("previous", [None, SMALL], ids=["distributed", "driver"])


@each_path
def test_hostile_texts(spark: SparkSession, tmp_path: Path, previous: BatchSize | None) -> None:
    rows = spark.createDataFrame(
        [(number, text, number) for number, text in enumerate([*TEXTS, None] * 3)], "id INT, s STRING, n LONG"
    )
    lake = Lake(tmp_path, partition_by=["s"])
    lake.deliver(rows, previous=previous)
    assert content(lake.read(spark, "id INT, n LONG, s STRING")) == content(rows)
    below = [path.relative_to(lake.root()) for path in lake.root().rglob("*.parquet")]
    assert {len(path.parts) for path in below} == {2}
    assert sorted(path.name for path in tmp_path.joinpath("lake").iterdir()) == [".penstock-staging", "only"]


@each_path
def test_other_types(spark: SparkSession, tmp_path: Path, previous: BatchSize | None) -> None:
    rows = spark.range(0, 60, 1, 2).selectExpr(
        "id",
        "CAST(IF(id % 5 = 0, NULL, id - 30) AS TINYINT) AS t",
        "IF(id % 7 = 0, NULL, id % 2 = 0) AS b",
        "date_add(DATE'1582-10-01', CAST(id % 3 AS INT) * 100000) AS d",
        "(id % 3) * 3074457345618258602 AS l",
    )
    lake = Lake(tmp_path, partition_by=["t", "b", "d", "l"])
    lake.deliver(rows, previous=previous)
    assert content(lake.read(spark, "id LONG, t TINYINT, b BOOLEAN, d DATE, l LONG")) == content(rows)


@each_path
def test_the_empty_text_is_refused_or_null_and_the_digest_is_that_of_what_is_stored(
    spark: SparkSession, tmp_path: Path, previous: BatchSize | None
) -> None:
    rows = spark.range(0, 30, 1, 2).selectExpr("id", "CASE id % 3 WHEN 0 THEN '' WHEN 1 THEN 'x' END AS s")
    with pytest.raises(StageFailed, match="'s' holds the text ''"):
        Lake(tmp_path / "refused", partition_by=["s"]).stage(rows, previous=previous)
    lake = Lake(tmp_path / "null", partition_by=["s"], null_for_lost_texts=True)
    lake.deliver(rows, previous=previous)
    assert content(lake.read(spark)) == content(rows.selectExpr("id", "nullif(s, '') AS s"))
