"""Makes the golden checkpoints beside this file with real Spark: `python tests/unit/checkpoints/regenerate.py [NAME…]`.

`expected.json` in each holds what Spark itself said about every batch: the offsets of its progress report, and the input files
that its rows came from. Tests compare the reader with that. Batch ids, offsets and paths are the same at every run; query ids,
times and checksums are not, so regenerate only what a new version of Spark writes differently. `rocksdb` needs protobuf.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

HERE = Path(__file__).parent
SCRATCH = Path(tempfile.gettempdir()) / "penstock-golden"
STATE = "org.apache.spark.sql.execution.streaming.state"
SCHEMA = "n INT, t STRING, at TIMESTAMP"
CASES: dict[str, Callable[[SparkSession], None]] = {}


def case(make: Callable[[SparkSession], None]) -> Callable[[SparkSession], None]:
    CASES[make.__name__] = make
    return make


@contextmanager
def conf(spark: SparkSession, **values: str) -> Iterator[None]:
    named = {"spark.sql.streaming." + key.replace("__", "."): value for key, value in values.items()}
    for key, value in named.items():
        spark.conf.set(key, value)
    yield
    for key in named:
        spark.conf.unset(key)


def put(source: str, number: int, rows: int = 1) -> None:
    folder = SCRATCH / "in" / source
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number:03}.csv"
    file.write_text("".join(f"{number + i},{source},2026-01-01T00:{number:02}:00Z\n" for i in range(rows)))
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def csv(spark: SparkSession, source: str, name: str | None = None) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    reader = reader if name is None else reader.name(name)
    return reader.csv(str(SCRATCH / "in" / source)).withColumn("_file", F.input_file_name())


def run(name: str, frame: DataFrame, *, mode: str = "append", batches: int | None = None) -> None:
    """Run `frame` to its end, or for that many batches, and keep its checkpoint with what Spark said about it."""
    files: dict[int, list[str]] = {}

    def deliver(rows: DataFrame, batch_id: int) -> None:
        collected = rows.collect()
        files[batch_id] = sorted({row["_file"] for row in collected}) if "_file" in rows.columns else []

    writer = frame.writeStream.foreachBatch(deliver).outputMode(mode).option("checkpointLocation", str(SCRATCH / name))
    writer = writer.trigger(availableNow=True) if batches is None else writer.trigger(processingTime="1 second")
    query = writer.start()
    while batches is not None and query.isActive and len(query.recentProgress) < batches:
        query.awaitTermination(1)
    (query.awaitTermination if batches is None else query.stop)()
    keep(name, query, files)


def keep(name: str, query: StreamingQuery, files: dict[int, list[str]]) -> None:
    target = HERE / name
    shutil.rmtree(target, ignore_errors=True)
    unchecked = shutil.ignore_patterns("*.crc") if name != "files" else None
    shutil.copytree(SCRATCH / name, target / "checkpoint", ignore=unchecked)
    said: dict[int, Any] = {}
    for progress in query.recentProgress:
        said[progress.batchId] = [
            {"description": source.description, "start": source.startOffset, "end": source.endOffset}
            for source in progress.sources
        ]
    batches = [{"batch_id": key, "sources": value, "files": files.get(key, [])} for key, value in sorted(said.items())]
    (target / "expected.json").write_text(json.dumps({"query_id": str(query.id), "batches": batches}, indent=1) + "\n")


@case
def files(spark: SparkSession) -> None:
    for number in range(13):
        put("a", number)
    run("files", csv(spark, "a"))


@case
def union(spark: SparkSession) -> None:
    for number in range(3):
        put("left", number)
        put("right", number + 10, rows=2)
    put("left", 3)
    run("union", csv(spark, "right").union(csv(spark, "left")))


@case
def named(spark: SparkSession) -> None:
    for number in range(2):
        put("left", number)
        put("right", number + 10)
    put("left", 2)
    with conf(spark, queryEvolution__enableSourceEvolution="true"):
        run("named", csv(spark, "right", "incoming").union(csv(spark, "left", "archive")))


@case
def itself(spark: SparkSession) -> None:
    put("a", 0)
    put("a", 1)
    with conf(spark, offsetLog__formatVersion="2"):
        one = csv(spark, "a")
        run("itself", one.union(one))


@case
def rate(spark: SparkSession) -> None:
    run("rate", spark.readStream.format("rate").option("rowsPerSecond", 2).load(), batches=3)


@case
def rate_micro_batch(spark: SparkSession) -> None:
    run("rate_micro_batch", spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load(), batches=3)


@case
def aggregation(spark: SparkSession) -> None:
    for number in range(3):
        put("a", number * 20)
    late = csv(spark, "a").withWatermark("at", "10 minutes")
    run("aggregation", late.groupBy(F.window("at", "5 minutes")).count())


@case
def join(spark: SparkSession) -> None:
    put("left", 0)
    put("right", 0)
    left, right = (csv(spark, side).withWatermark("at", "1 hour") for side in ("left", "right"))
    condition = "l.n = r.n AND l.at BETWEEN r.at AND r.at + INTERVAL 1 HOUR"
    run("join", left.alias("l").join(right.alias("r"), F.expr(condition)).select("l.n"))


class Counting(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "c INT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        count = (self._count.get()[0] if self._count.exists() else 0) + sum(len(part) for part in rows)
        self._count.update((count,))
        yield pd.DataFrame({"n": [key[0]], "c": [count]})

    def close(self) -> None:
        pass


@case
def rocksdb(spark: SparkSession) -> None:
    """State checkpoints of version 2, commits of version 2, operator metadata of version 2."""
    for number in range(2):
        put("a", number)
    rocks = f"{STATE}.RocksDBStateStoreProvider"
    with conf(spark, stateStore__providerClass=rocks, stateStore__checkpointFormatVersion="2"):
        counted = csv(spark, "a").groupBy("n").transformWithStateInPandas(Counting(), "n INT, c INT", "update", "none")
        run("rocksdb", counted, mode="update", batches=2)


def main(names: list[str]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"ui.enabled": "false", "sql.shuffle.partitions": "2", "log.level": "OFF", "sql.session.timeZone": "UTC"}
    builder = SparkSession.builder.master("local[2]")
    spark = builder.config(map={f"spark.{key}": value for key, value in settings.items()}).getOrCreate()
    for name in names or CASES:
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir()
        CASES[name](spark)
    shutil.rmtree(SCRATCH)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
