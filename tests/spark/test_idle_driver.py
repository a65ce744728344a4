"""A driver without new data decides nothing, so nothing tells it that it was fenced: it looks by itself."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import Fenced
from penstock.run import query as running
from tests.spark.streams import put
from tests.spark.target import Target

pytestmark = pytest.mark.spark


def test_an_idle_driver_stops_when_a_newer_one_opened_the_pipeline(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "FENCE_LOOK_S", 0.1)
    put(tmp_path / "in", "0.csv", 1, 2)
    target = Target(tmp_path)
    idle = target.delivery()
    query = idle.start(spark.readStream.schema("n INT").csv(str(tmp_path / "in")).writeStream)
    while query.lastProgress is None:
        query.awaitTermination(0.1)
    newer = target.delivery()
    newer.open(schema=None)
    newer.release()
    with pytest.raises(Fenced, match="generation 2"):
        query.awaitTermination(60)
    assert not query.isActive
