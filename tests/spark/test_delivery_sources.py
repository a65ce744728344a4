"""Several sources in one query: Spark knows them by their place in the plan alone."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import SourcesChanged
from tests.spark.streams import put
from tests.spark.target import Target

pytestmark = pytest.mark.spark

PIPELINE = """
pipeline: numbers
home: home
trigger: {{available_now: true}}
sources:
  a: {{format: csv, path: "{root}/a/*.csv", schema: n INT}}
  b: {{format: csv, path: "{root}/b/*.csv", schema: n INT}}
transform: {{sql: "{sql}"}}
sinks:
  table: {{type: sqlite, url: "sqlite:///{root}/warehouse.db", table: numbers}}
"""


def run(spark: SparkSession, root: Path, sql: str) -> None:
    (root / "pipeline.yaml").write_text(PIPELINE.format(root=root, sql=sql))
    penstock.Pipeline.from_file(root / "pipeline.yaml").start(spark).awaitTermination()


def test_sources_in_another_order_are_refused_before_spark_reads_one_by_the_log_of_the_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = Target(tmp_path)
    put(tmp_path / "a", "0.csv", 1)
    put(tmp_path / "b", "0.csv", 2)
    run(spark, tmp_path, "SELECT n FROM a UNION ALL SELECT n FROM b")
    put(tmp_path / "a", "1.csv", 3)
    with pytest.raises(SourcesChanged, match="in the order b, a, but"):
        run(spark, tmp_path, "SELECT n FROM b UNION ALL SELECT n FROM a")
    run(spark, tmp_path, "SELECT n FROM a UNION ALL SELECT n FROM b")
    assert target.rows() == Counter([(1,), (2,), (3,)])
