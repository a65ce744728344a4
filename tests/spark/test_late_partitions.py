"""The first directory `month=7` below an input comes when the query runs: Spark alone delivers month as id, and id as origin."""

import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import Retryable
from tests.spark.streams import put
from tests.spark.target import Target

pytestmark = pytest.mark.spark

PIPELINE = """
pipeline: numbers
home: home
sources:
  flights: {{format: csv, path: "{root}/in", schema: "month INT, n INT, many INT"}}
transform: {{sql: "SELECT n, many, month FROM flights"}}
sinks:
  table: {{type: sqlite, url: "sqlite:///{root}/warehouse.db", table: numbers}}
"""


def test_the_batch_is_refused_and_right_after_a_new_start(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(root=tmp_path))
    first = threading.Event()
    query = penstock.Pipeline.from_file(tmp_path / "pipeline.yaml").start(spark, observers=[lambda _: first.set()])
    put(tmp_path / "in" / "month=7", "a.csv", "1,10", "2,20")
    with pytest.raises(Retryable, match="Spark would put month into other columns"):
        query.awaitTermination()
    assert not first.is_set()
    again = penstock.Pipeline.from_file(tmp_path / "pipeline.yaml", ["trigger={available_now: true}"])
    again.start(spark).awaitTermination()
    assert Target(tmp_path).rows() == Counter([(1, 10, 7), (2, 20, 7)])
