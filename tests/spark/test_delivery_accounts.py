"""Accounts that come into a sink and are taken out of it."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.errors import LedgerMismatch
from penstock.run.operations import recover
from tests.spark.streams import put
from tests.spark.target import Target

pytestmark = pytest.mark.spark


def test_an_account_is_taken_out_as_the_error_says(spark: SparkSession, tmp_path: Path) -> None:
    def numbers() -> DataFrame:
        return spark.readStream.schema("n INT").csv(str(tmp_path / "in"))

    target = Target(tmp_path)
    put(tmp_path / "in", "0.csv", 1, 2)
    target.deliver(numbers())
    fewer = {"lake": penstock.Parquet(accounts={"even": tmp_path / "lake/even"}, route={"sql": "'even'"}), "table": target.table}
    with pytest.raises(LedgerMismatch, match="'odd', which sink 'lake' lacks") as caught:
        target.deliver(numbers(), sinks=fewer)
    assert "Run `penstock recover` with the pipeline file that still has this account" in caught.value.remedy
    recover(target.delivery().plan)
    put(tmp_path / "in", "1.csv", 4)
    target.deliver(numbers(), sinks=fewer)
    assert (target.account("even"), target.account("odd")) == (Counter([(2,), (4,)]), Counter([(1,)]))
