"""Real queries go on exactly from a checkpoint that was rewound, collected or repaired."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from penstock.checkpoint.acting import carry_out, undo
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.gc_plan import plan_gc
from penstock.checkpoint.repair_plan import plan_repair
from penstock.checkpoint.rewind_plan import plan_rewind
from penstock.checkpoint.verification import verify_files
from penstock.core.model import BatchId
from tests.spark.streams import put, run

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
Delivered = dict[int, Counter[tuple[object, ...]]]


@pytest.fixture(name="rocksdb")
def _rocksdb(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PROVIDER, ROCKSDB)
    spark.conf.set(CHANGELOG, "true")
    yield
    spark.conf.unset(PROVIDER)
    spark.conf.unset(CHANGELOG)


def events(spark: SparkSession, root: Path) -> DataFrame:
    (root / "in").mkdir(exist_ok=True)
    frame = spark.readStream.schema("n INT, at TIMESTAMP").option("maxFilesPerTrigger", 1)
    return frame.csv(str(root / "in")).withWatermark("at", "30 minutes")


def counted(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.window("at", "30 minutes"), "n").count().select("window.start", "n", "count")


def put_hour(root: Path, number: int) -> None:
    put(root / "in", f"{number}.csv", *(f"{key % 2},2026-01-01T{number:02}:{10 * key:02}:00Z" for key in range(5)))


def delivered(frame: DataFrame, checkpoint: Path) -> Delivered:
    """Run everything that is there, and return the rows of each batch."""
    found: Delivered = {}

    def deliver(rows: DataFrame, batch_id: int) -> None:
        found[batch_id] = Counter(tuple(row) for row in rows.collect())

    assert run(frame, checkpoint, deliver).exception() is None
    return found


def test_files_are_read_again_from_the_batch_that_the_checkpoint_goes_back_to(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(6):
        put_hour(tmp_path, number)
    first = delivered(events(spark, tmp_path).select("n"), tmp_path / "c")
    files = LocalFiles(tmp_path / "c")
    carry_out(files, plan_gc(files, keep_batches=4))
    carry_out(files, plan_rewind(files, to_batch=BatchId(2)))
    put_hour(tmp_path, 6)
    again = delivered(events(spark, tmp_path).select("n"), tmp_path / "c")
    assert {number: again[number] for number in (3, 4, 5)} == {number: first[number] for number in (3, 4, 5)}
    assert sorted(again) == [3, 4, 5, 6]
    for name in ("5", ".5.crc"):  # bug 24: a hole before the newest entry
        (tmp_path / "c" / "offsets" / name).unlink()
    carry_out(files, plan_repair(files))
    put_hour(tmp_path, 7)
    assert delivered(events(spark, tmp_path).select("n"), tmp_path / "c") == {7: again[6]}
    assert verify_files(files).findings[0].severity.value == "harmless", "the commit of the hole"


@pytest.mark.usefixtures("rocksdb")
def test_a_windowed_aggregation_goes_on_from_the_state_of_that_batch(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(6):
        put_hour(tmp_path, number)
    query = counted(events(spark, tmp_path))
    first = delivered(query, tmp_path / "c")
    files = LocalFiles(tmp_path / "c")
    carry_out(files, plan_rewind(files, to_batch=BatchId(2)))
    undo(files, verb="rewind", yes=True)
    assert delivered(query, tmp_path / "c") == {}, "as if nothing had happened"
    carry_out(files, plan_rewind(files, to_batch=BatchId(1)))
    again = delivered(query, tmp_path / "c")
    assert sorted(again) == [batch_id for batch_id in sorted(first) if batch_id > 1]
    assert again == {batch_id: first[batch_id] for batch_id in again}
    assert any(rows for rows in again.values())
    assert verify_files(files).findings == ()
