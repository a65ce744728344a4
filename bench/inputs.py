"""The rows that all parts share: seven mixed columns of a number, as frames, files of one batch each, and endless streams."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench.measuring import Bench

COLUMNS = "id BIGINT, account STRING, name STRING, amount DOUBLE, price DECIMAL(12,2), at TIMESTAMP, k INT"
WIDE = f"{COLUMNS}, day DATE, seen TIMESTAMP"
"""Two more: events have a day to be filed under, and a time at which they were seen."""


def expressions(*, accounts: int = 3) -> list[str]:
    """The seven columns of a number `id`."""
    return [
        "id",
        f"concat('account', CAST(xxhash64(id) & 65535 AS INT) % {accounts}) AS account",
        "concat('name-', id % 1000) AS name",
        "id * 1.5D AS amount",
        "CAST((id % 1000000) / 100 AS DECIMAL(12,2)) AS price",
        "timestamp_micros(1700000000000000 + id * 1000) AS at",
        "CAST(id % 97 AS INT) AS k",
    ]


def numbers(ids: DataFrame, *, accounts: int = 3, wide: bool = False) -> DataFrame:
    """A row of seven mixed columns for each `id`, or of nine."""
    more = ["date_add(DATE'2024-01-01', CAST(id % 700 AS INT)) AS day", "timestamp_micros(1700000500000000 + id * 1001) AS seen"]
    return ids.selectExpr(*expressions(accounts=accounts), *(more if wide else []))


def write_input(spark: SparkSession, root: Path, *, rows: int, columns: Sequence[str], files: int) -> None:
    """`rows` rows, `columns` of a number `id` each, in `files` Parquet files."""
    spark.range(0, rows, 1, files).selectExpr(*columns).write.mode("overwrite").parquet(str(root))


def stream(bench: Bench, root: Path, *, files_per_batch: int = 1_000, columns: str = COLUMNS) -> DataFrame:
    """Those files, by default as one batch."""
    source = bench.spark.readStream.schema(columns).option("maxFilesPerTrigger", files_per_batch)
    return bench.on_its_way(source.parquet(str(root)))


def counted(bench: Bench, rows_per_batch: int) -> DataFrame:
    """An endless stream of seven columns in batches of exactly `rows_per_batch` rows: the numbers from 0 on."""
    source = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    ids = source.option("numPartitions", 2).load().selectExpr("value AS id")
    return bench.on_its_way(numbers(ids))


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Files of `rows` rows, one for each batch of a query; the first `warm_up` batches are not counted."""

    root: Path
    rows: int
    batches: int
    warm_up: int

    def write(self, table_of: "Callable[[int, int], pa.Table]") -> None:
        """Each file with the table from a first number to the one after the last, in the order of their times."""
        self.root.mkdir(parents=True)
        for batch in range(self.batches):
            file = self.root / f"{batch:03}.parquet"
            table = table_of(batch * self.rows, (batch + 1) * self.rows)
            pq.write_table(table, file, row_group_size=max(1, self.rows // 4))
            os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))
