"""One Spark session for all measurements."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.run.java import use_java

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def session(packages: Sequence[str] = (), jars: Sequence[Path] = (), *, cores: int = 2) -> SparkSession:
    """Quiet, the defaults otherwise. `packages` of Maven's and `jars` count in the first session of a process only.

    A session with another number of `cores` is stopped before.
    """
    master, former = f"local[{cores}]", SparkSession.getActiveSession()
    if former is not None and former.sparkContext.master != master:
        former.stop()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    use_java()
    spark = (
        SparkSession.builder.master(master)
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


def write_checkpoints(spark: SparkSession, *, in_process: bool) -> None:
    """For all writers alike. On a local disk, without Hadoop's native library, Spark starts nine processes a batch for them.

    Parts whose batches are small beside that have them written by the JVM itself; the others by Spark's default.
    """
    package = "org.apache.spark.sql.execution.streaming.checkpointing"
    if in_process:
        spark.conf.set(_FILE_MANAGER, f"{package}.FileSystemBasedCheckpointFileManager")
    else:
        spark.conf.unset(_FILE_MANAGER)
