"""Makes the archives beside this file, real checkpoints of the installed version of Spark: `python make.py`.

Run it once with each version of Spark; 3.5 to 4.3 work with Python 3.11 and Java 17. Archives of other versions stay as they are.
Each holds `checkpoint/` and `expected.json`: what Spark itself said about every batch in its progress reports. Query ids, times
and names of state files differ from run to run, so tests take them from the archive.
"""

import json
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

HERE = Path(__file__).parent
SCRATCH = Path(tempfile.gettempdir()) / "penstock-versions"
VERSION = ".".join(pyspark.__version__.split(".")[:2])
BATCHES = 8
ROCKSDB = {
    "stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "stateStore.rocksdb.changelogCheckpointing.enabled": "false",
}
CHANGELOG = {**ROCKSDB, "stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
UNIQUE_IDS = {**CHANGELOG, "stateStore.checkpointFormatVersion": "2"}
"""State files with unique ids in their names; of Spark 4.0 and newer."""
EVERYWHERE = {
    "minBatchesToRetain": "4",
    "stateStore.minDeltasForSnapshot": "3",
    "stateStore.maintenanceInterval": "200ms",
    "fileSource.log.compactInterval": "3",
    "fileSource.log.cleanupDelay": "0",
}


def put(source: str, number: int) -> None:
    folder = SCRATCH / "in" / source
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"{number + key},2026-01-01T{number:02}:00:00Z\n" for key in range(3)]
    (folder / f"{number:03}.csv").write_text("".join(rows))
    os.utime(folder / f"{number:03}.csv", (1_700_000_000 + number, 1_700_000_000 + number))


def stream(spark: SparkSession, source: str) -> DataFrame:
    for number in range(BATCHES):
        put(source, number)
    reader = spark.readStream.schema("n INT, at TIMESTAMP").option("maxFilesPerTrigger", 1)
    return reader.csv(str(SCRATCH / "in" / source)).withWatermark("at", "30 minutes")


def files(spark: SparkSession) -> DataFrame:
    return stream(spark, "a").select("n")


def aggregation(spark: SparkSession) -> DataFrame:
    return stream(spark, "a").groupBy(F.window("at", "30 minutes"), "n").count().select("n", "count")


def deduplication(spark: SparkSession) -> DataFrame:
    return stream(spark, "a").dropDuplicates(["n"])


def join(spark: SparkSession) -> DataFrame:
    left, right = stream(spark, "a").alias("l"), stream(spark, "b").alias("r")
    return left.join(right, F.expr("l.n = r.n AND l.at = r.at"), "inner").select("l.n")


CASES: dict[str, tuple[Callable[[SparkSession], DataFrame], dict[str, str]]] = {
    "files": (files, {}),
    "aggregation": (aggregation, {}),
    "join": (join, {}),
    "rocksdb": (deduplication, ROCKSDB),
    "changelog": (deduplication, CHANGELOG),
    **({} if VERSION == "3.5" else {"unique": (deduplication, UNIQUE_IDS)}),
}


def make(spark: SparkSession, name: str) -> None:
    frame, own = CASES[name]
    for key, value in {**EVERYWHERE, **own}.items():
        spark.conf.set(f"spark.sql.streaming.{key}", value)
    place = SCRATCH / name / "checkpoint"

    def deliver(rows: DataFrame, batch_id: int) -> None:
        rows.collect()
        threading.Event().wait(0.5)  # so that the maintenance thread writes snapshots and removes old versions between batches

    writer = frame(spark).writeStream.foreachBatch(deliver).option("checkpointLocation", str(place))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    said = [
        {"batch_id": one["batchId"], "sources": [source["endOffset"] for source in one["sources"]]}
        for one in query.recentProgress
    ]
    expected = {"spark": pyspark.__version__, "query_id": str(query.id), "batches": said}
    (SCRATCH / name / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    for key in own:
        spark.conf.unset(f"spark.sql.streaming.{key}")
    with tarfile.open(HERE / f"spark-{VERSION}-{name}.tar.xz", "w:xz") as archive:
        for part in ("checkpoint", "expected.json"):
            archive.add(SCRATCH / name / part, arcname=part, filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def local_session() -> SparkSession:
    settings = {"ui.enabled": "false", "sql.shuffle.partitions": "2", "sql.session.timeZone": "UTC"}
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(f"spark.{key}", value)
    return builder.config("spark.sql.streaming.stateStore.maintenanceInterval", "200ms").getOrCreate()


def main() -> None:
    spark = local_session()
    for name in CASES:
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir()
        make(spark, name)
    shutil.rmtree(SCRATCH)
    spark.stop()


if __name__ == "__main__":
    main()
