"""`check` says before anything runs what a start would say of the rows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import Usage
from tests.spark.streams import put

pytestmark = pytest.mark.spark

PIPELINE = """
pipeline: numbers
home: {root}/home
trigger: {{available_now: true}}
sources:
  numbers: {{format: csv, path: "{root}/in", schema: "n INT, day INT"}}
sinks:
  lake: {{type: parquet, accounts: {{only: "{root}/lake"}}, partition_by: {partition_by}}}
  table: {{type: sqlite, url: "sqlite:///{root}/warehouse.db", table: numbers, write: upsert, key: {key}}}
"""


def pipeline(root: Path, *, partition_by: str = "[day]", key: str = "[n]") -> penstock.Pipeline:
    (root / "pipeline.yaml").write_text(PIPELINE.format(root=root, partition_by=partition_by, key=key))
    return penstock.Pipeline.from_file(root / "pipeline.yaml")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "in", "0.csv", "1,1", "2,1")
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"partition_by": "[dayy]"}, "Sink 'lake': .*'dayy'"), ({"key": "[idd]"}, "Sink 'table': The key names column 'idd'")],
    ids=["partition column", "key column"],
)
def test_a_column_that_the_rows_lack_is_told(spark: SparkSession, root: Path, changes: dict[str, str], told: str) -> None:
    with pytest.raises(Usage, match=told):
        pipeline(root, **changes).check(spark)


def test_what_a_start_would_refuse_is_told_and_nothing_is_made(spark: SparkSession, root: Path) -> None:
    assert pipeline(root).check(spark).ok
    assert not (root / "lake").exists()
    assert not (root / "warehouse.db").exists()
    pipeline(root).start(spark).awaitTermination()
    assert pipeline(root).check(spark).ok
    report = pipeline(root, partition_by="[]").check(spark)
    assert not report.ok
    assert ["partitioned by day" in finding.message for finding in report.findings if not finding.ok] == [True]
