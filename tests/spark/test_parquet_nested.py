"""Nested columns as Spark itself reads them: above all nulls around fields that cannot be null."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.stage.path import BatchSize
from tests.spark.lake import SMALL, Lake, content

VALUES = {
    "struct": "if(id % 2 = 0, named_struct('a', id, 'b', array(named_struct('x', id))), NULL)",
    "array": "array(if(id % 2 = 0, named_struct('a', id), NULL), named_struct('a', 7L))",
    "map": "map('k', if(id % 2 = 0, named_struct('a', id), NULL))",
}


@pytest.mark.parametrize("previous", [None, SMALL], ids=["distributed", "driver"])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_struct_that_is_null_though_its_fields_cannot_be(
    spark: SparkSession, tmp_path: Path, value: str, previous: BatchSize | None
) -> None:
    rows = spark.range(0, 9, 1, 2).selectExpr("id", f"{value} AS v")
    lake = Lake(tmp_path)
    lake.deliver(rows, previous=previous)
    assert content(lake.read(spark)) == content(rows)
