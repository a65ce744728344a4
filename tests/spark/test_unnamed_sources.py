"""A drop-in that was given no names of its sources becomes a pipeline file, or is given names, under the same checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import Refused
from tests.spark.streams import forget_commit, put

pytestmark = pytest.mark.spark


def deliver(spark: SparkSession, root: Path, **more: Any) -> None:
    rows = spark.readStream.schema("n INT").csv(str(root / "in"))
    sinks = {"lake": penstock.Parquet(accounts={"all": root / "lake"})}
    delivery = penstock.Delivery("numbers", home=root / "home", sinks=sinks, **more)
    delivery.start(rows.writeStream.trigger(availableNow=True)).awaitTermination()


def file_of(root: Path, sources: Mapping[str, str], sql: str = "SELECT * FROM numbers") -> penstock.Pipeline:
    file = root / "pipeline.yaml"
    settings = {
        "pipeline": "numbers",
        "home": "./home",
        "sources": {name: {"format": "csv", "path": path, "schema": "n INT"} for name, path in sources.items()},
        "transform": {"sql": sql},
        "sinks": {"lake": {"type": "parquet", "accounts": {"all": "./lake"}}},
        "trigger": {"available_now": True},
    }
    file.write_text(json.dumps(settings))  # YAML can be written so
    return penstock.Pipeline.from_file(file)


def found(spark: SparkSession, root: Path) -> list[int]:
    return sorted(row.n for row in spark.read.parquet(str(root / "lake")).collect())


@pytest.mark.timeout(240)
def test_a_drop_in_becomes_a_pipeline_file_and_one_with_names(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "0.csv", 1, 2)
    deliver(spark, tmp_path)
    pipeline = file_of(tmp_path, {"numbers": "./in"})
    assert not [change for change in pipeline.check(spark).preflight.changes if change.part.startswith("source")]
    put(tmp_path / "in", "1.csv", 3)
    pipeline.start(spark).awaitTermination()
    forget_commit(tmp_path / "home" / "checkpoint", 1)
    deliver(spark, tmp_path, sources=["numbers"])
    forget_commit(tmp_path / "home" / "checkpoint", 1)
    put(tmp_path / "in", "2.csv", 4)
    deliver(spark, tmp_path)
    assert found(spark, tmp_path) == [1, 2, 3, 4]
    assert pipeline.verify().ok


@pytest.mark.timeout(120)
def test_another_number_of_sources_is_refused_as_before(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "0.csv", 1, 2)
    put(tmp_path / "more", "0.csv", 7)
    deliver(spark, tmp_path)
    both = {"numbers": "./in", "others": "./more"}
    pipeline = file_of(tmp_path, both, "SELECT * FROM numbers UNION ALL SELECT * FROM others")
    with pytest.raises(Refused):
        pipeline.start(spark)
    assert found(spark, tmp_path) == [1, 2]
