"""The checkpoint's reader beside a running query: asked inside foreachBatch, compared with what Spark reports and reads."""

import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name Spark's own documentation uses

from penstock.checkpoint.input_listing import require_unchanged
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import Batch, BatchId, SourceName
from penstock.errors import InputChanged
from tests.spark.streams import forget_commit, put, run

A, B = SourceName("a"), SourceName("b")


def csv(spark: SparkSession, folder: Path, **options: object) -> DataFrame:
    return spark.readStream.schema("n INT").options(**options).csv(str(folder))


class Reader:
    """Reads every batch from the checkpoint while Spark runs it, and the files its rows come from."""

    def __init__(self, checkpoint: Path, *names: SourceName) -> None:
        self.path, self.checkpoint, self.names = checkpoint, SparkCheckpoint(checkpoint), names
        self.batches: dict[int, Batch] = {}
        self.files: dict[int, list[str]] = {}
        self.stateful: list[bool] = []

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self.stateful.append(self.checkpoint.has_state())
        self.batches[batch_id] = self.checkpoint.batch(BatchId(batch_id), self.names)
        read = rows.collect()
        self.files[batch_id] = sorted({row["file"] for row in read}) if "file" in rows.columns else []

    def listed(self, batch_id: int) -> list[str]:
        inputs = self.checkpoint.input_files(BatchId(batch_id), self.names)
        return sorted(file.path for files in inputs.values() for file in files)


@pytest.mark.parametrize(("compact_interval", "files_per_batch"), [(10, 1), (3, 2)])
def test_batches_before_and_after_compaction(
    spark: SparkSession, tmp_path: Path, compact_interval: int, files_per_batch: int
) -> None:
    batches = 2 * compact_interval + 1
    for number in range(batches * files_per_batch):
        put(tmp_path / "in", f"{number} ü#%.csv", number)
    spark.conf.set("spark.sql.streaming.fileSource.log.compactInterval", str(compact_interval))
    try:
        frame = csv(spark, tmp_path / "in", maxFilesPerTrigger=files_per_batch).withColumn("file", F.input_file_name())
        reader = Reader(tmp_path / "c", A)
        query = run(frame, reader.path, reader)
    finally:
        spark.conf.unset("spark.sql.streaming.fileSource.log.compactInterval")

    assert len(list((tmp_path / "c/sources/0").glob("*.compact"))) == 2
    assert len(reader.batches) == batches
    for progress in query.recentProgress:
        (offsets,) = reader.batches[progress.batchId].offsets
        assert json.loads(offsets.start or "null") == json.loads(progress.sources[0].startOffset or "null")
        assert json.loads(offsets.end or "null") == json.loads(progress.sources[0].endOffset)
    for batch_id, batch in reader.batches.items():
        assert reader.listed(batch_id) == reader.files[batch_id]
        assert reader.checkpoint.batch(BatchId(batch_id), [A]) == batch


def test_a_replay_is_the_same_batch(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(tmp_path / name, "1.csv", 1)
    frame = csv(spark, tmp_path / "b").union(csv(spark, tmp_path / "a"))
    reader = Reader(tmp_path / "c", B, A)
    run(frame, reader.path, reader)
    first = reader.batches[0]
    for name in ("a", "b"):
        (tmp_path / name / "1.csv").write_text("2\n3\n")
        put(tmp_path / name, "2.csv", 2)
    forget_commit(tmp_path / "c", 0)
    run(frame, reader.path, reader)

    assert reader.batches[0] == first
    assert reader.batches[1] != first
    assert [offsets.source for offsets in first.offsets] == ["b", "a"]


def test_state_is_known_in_the_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.csv", 1)
    stateful, plain = Reader(tmp_path / "s", A), Reader(tmp_path / "p", A)

    run(csv(spark, tmp_path / "in").dropDuplicates(["n"]), stateful.path, stateful)
    run(csv(spark, tmp_path / "in"), plain.path, plain)

    assert stateful.stateful == [True]
    assert plain.stateful == [False]


class Rows:
    """Collects the rows of every batch, and checks the input after each like a delivery does before it decides."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint, self.rows = checkpoint, {}
        self.changed: list[str] = []

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self.rows[batch_id] = sorted(row["n"] for row in rows.collect())
        reader = SparkCheckpoint(self.checkpoint)
        try:
            require_unchanged(BatchId(batch_id), reader.input_files(BatchId(batch_id), [A]))
        except InputChanged as error:
            self.changed.append(error.message)


@pytest.mark.parametrize("change", ["removed", "rewritten", "cut off"])
def test_spark_takes_changed_input_in_silence_and_the_check_sees_it(spark: SparkSession, tmp_path: Path, change: str) -> None:
    """A batch is planned, the driver dies, an input file changes, the batch is repeated: with other rows, and no error."""
    file = put(tmp_path / "in", "1.csv", 1, 2)
    put(tmp_path / "in", "2.csv", 3)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    seen = Rows(tmp_path / "c")
    run(csv(spark, tmp_path / "in"), seen.checkpoint, seen)
    assert (seen.rows, seen.changed) == ({0: [1, 2, 3]}, [])
    forget_commit(tmp_path / "c", 0)

    {"removed": file.unlink, "rewritten": lambda: file.write_text("8\n9\n"), "cut off": lambda: os.truncate(file, 2)}[change]()
    run(csv(spark, tmp_path / "in"), seen.checkpoint, seen)

    assert seen.rows[0] == {"removed": [3], "rewritten": [3, 8, 9], "cut off": [1, 3]}[change]
    (message,) = seen.changed
    assert str(file) in message


def test_a_rate_batch_is_repeated_alike_until_its_origin_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    reader = Reader(tmp_path / "c", A)

    def until_rows_came() -> dict[int, list[tuple[object, ...]]]:
        rows: dict[int, list[tuple[object, ...]]] = {}

        def deliver(frame: DataFrame, batch_id: int) -> None:
            reader(frame, batch_id)
            rows[batch_id] = sorted(tuple(row) for row in frame.collect())

        frame = spark.readStream.format("rate").option("rowsPerSecond", 2).load()
        query = frame.writeStream.foreachBatch(deliver).option("checkpointLocation", str(reader.path)).start()
        while query.isActive and not any(rows.values()):
            query.awaitTermination(1)
        query.stop()
        return rows

    rows = until_rows_came()
    newest = max(rows)
    batch = reader.batches[newest]
    assert rows[newest]
    roll_back(reader.path, newest)
    assert until_rows_came()[newest] == rows[newest]
    assert reader.batches[newest] == batch

    roll_back(reader.path, newest)
    shutil.rmtree(reader.path / "sources")
    assert until_rows_came()[newest] != rows[newest]
    assert reader.batches[newest] != batch


def roll_back(checkpoint: Path, batch_id: int) -> None:
    """The checkpoint as it was while `batch_id` ran."""
    for folder, first in (("offsets", batch_id + 1), ("commits", batch_id)):
        for entry in (checkpoint / folder).iterdir():
            number = entry.name.removeprefix(".").removesuffix(".crc")
            if number.isdecimal() and int(number) >= first:
                entry.unlink()
