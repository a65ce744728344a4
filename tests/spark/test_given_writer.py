"""What a writer of a query that ran without Penstock still says, as `Delivery.start` sees it on a classic session."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import penstock
from penstock.errors import Usage
from tests.spark.streams import put

pytestmark = pytest.mark.spark


def writer(spark: SparkSession, root: Path) -> DataStreamWriter:
    put(root / "in", "0.csv", 1, 2)
    return spark.readStream.schema("n INT").csv(str(root / "in")).writeStream.trigger(availableNow=True)


def delivery(root: Path) -> penstock.Delivery:
    table = penstock.SQLite(url=f"sqlite:///{root}/warehouse.db", table="numbers")
    return penstock.Delivery("numbers", home=root / "home", sinks={"table": table})


@pytest.mark.timeout(120)
def test_what_the_old_query_says_is_refused_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    calls: list[int] = []
    given = {
        "checkpointLocation": writer(spark, tmp_path).option("checkpointLocation", str(tmp_path / "old")),
        "`foreachBatch`": writer(spark, tmp_path).foreachBatch(lambda _rows, batch_id: calls.append(batch_id)),
        "`format": writer(spark, tmp_path).format("console"),
        "the option path": writer(spark, tmp_path).option("path", str(tmp_path / "lake")),
    }
    for says, each in given.items():
        with pytest.raises(Usage) as refused:
            delivery(tmp_path).start(each)
        assert says in str(refused.value)
    with pytest.raises(Usage, match="found an object of class DataFrame"):
        delivery(tmp_path).start(spark.readStream.schema("n INT").csv(str(tmp_path / "in")))  # type: ignore[arg-type]
    assert not calls
    assert not list((tmp_path / "home").glob("ledger*"))


@pytest.mark.timeout(120)
def test_a_writer_is_started_again_and_may_name_the_delivery_s_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    one = delivery(tmp_path)
    same = writer(spark, tmp_path).option("checkpointLocation", one.checkpoint)
    one.start(same).awaitTermination()
    put(tmp_path / "in", "1.csv", 3)
    query = one.start(same)
    query.awaitTermination()
    assert query.history()[0].rows_out == 1
