"""One Spark session for all measurements, and the input they share."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.run.java import use_java

COLUMNS = "id BIGINT, account STRING, name STRING, amount DOUBLE, price DECIMAL(12,2), at TIMESTAMP, k INT"
WIDE = f"{COLUMNS}, day DATE, seen TIMESTAMP"
"""Two more: events have a day to be filed under, and a time at which they were seen."""


def session(packages: Sequence[str] = (), jars: Sequence[Path] = ()) -> SparkSession:
    """Two cores, quiet, the defaults otherwise. `packages` of Maven's and `jars` count in the first session of a process only."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    use_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("penstock-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.memory", "6g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.numRecentProgressUpdates", "5000")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .config("spark.jars.packages", ",".join(packages))
        .config("spark.jars", ",".join(map(str, jars)))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def write_checkpoints_in_process(spark: SparkSession) -> None:
    """For all writers alike: on a local disk, without Hadoop's native library, Spark starts nine processes a batch for that."""
    package = "org.apache.spark.sql.execution.streaming.checkpointing"
    spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", f"{package}.FileSystemBasedCheckpointFileManager")


def write_input(spark: SparkSession, root: Path, *, rows: int, accounts: int, files: int) -> None:
    """`rows` rows of seven mixed columns in `files` Parquet files, spread over `accounts` accounts."""
    numbers(spark.range(0, rows, 1, files), accounts=accounts).write.mode("overwrite").parquet(str(root))


def numbers(ids: DataFrame, *, accounts: int = 3, wide: bool = False) -> DataFrame:
    """A row of seven mixed columns for each `id`, or of nine."""
    more = ["date_add(DATE'2024-01-01', CAST(id % 700 AS INT)) AS day", "timestamp_micros(1700000500000000 + id * 1001) AS seen"]
    return ids.selectExpr(
        "id",
        f"concat('account', CAST(xxhash64(id) & 65535 AS INT) % {accounts}) AS account",
        "concat('name-', id % 1000) AS name",
        "id * 1.5D AS amount",
        "CAST((id % 1000000) / 100 AS DECIMAL(12,2)) AS price",
        "timestamp_micros(1700000000000000 + id * 1000) AS at",
        "CAST(id % 97 AS INT) AS k",
        *(more if wide else []),
    )


def stream(spark: SparkSession, root: Path, *, files_per_batch: int = 1_000, columns: str = COLUMNS) -> DataFrame:
    """The input, by default as one batch."""
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", files_per_batch).parquet(str(root))


def counted(spark: SparkSession, rows_per_batch: int, *, partitions: int = 2) -> DataFrame:
    """An endless stream of seven columns in batches of exactly `rows_per_batch` rows."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    return (
        source.option("numPartitions", partitions)
        .load()
        .selectExpr(
            "value AS id",
            "concat('account', value % 3) AS account",
            "concat('name-', value % 1000) AS name",
            "value * 1.5D AS amount",
            "CAST((value % 1000000) / 100 AS DECIMAL(12,2)) AS price",
            "timestamp AS at",
            "CAST(value % 97 AS INT) AS k",
        )
    )
