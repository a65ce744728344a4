"""Is the content of a measured run right? Count and order-free digest, computed by Spark from the files or tables themselves."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bench.inputs import COLUMNS

Fingerprint = tuple[int, int]


def fingerprint(frame: DataFrame) -> Fingerprint:
    """Rows, and the sum of their hashes modulo 2^64 over all columns in the order of their names."""
    hashed = frame.select(F.xxhash64(*sorted(frame.columns)).cast("decimal(38,0)").alias("h"))
    row = hashed.agg(F.count("*"), F.sum("h")).first()
    assert row is not None
    return int(row[0]), int(row[1] or 0) % 2**64


def of_directories(spark: SparkSession, roots: Sequence[Path], *, columns: str = COLUMNS, where: str = "true") -> Fingerprint:
    """What lies below several table roots together."""
    rows, digest = 0, 0
    for root in roots:
        found = fingerprint(spark.read.schema(columns).parquet(str(root)).where(where))
        rows, digest = rows + found[0], (digest + found[1]) % 2**64
    return rows, digest
