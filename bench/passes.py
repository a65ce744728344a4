"""One pass to N accounts against N passes over the same batch, uncached and cached, and against Spark's own partitionBy."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import penstock
from bench.content import Fingerprint, fingerprint, of_directories
from bench.session import stream, write_input
from bench.table import Table, median, ratio

ROWS, FILES, ROUNDS = 4_000_000, 8, 3
Write = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class Way:
    """One way to write the batch: a function for foreachBatch, or None for Penstock."""

    name: str
    write: Callable[[Path, int], Write] | None


def _n_pass(*, cached: bool) -> Callable[[Path, int], Write]:
    def made(root: Path, accounts: int) -> Write:
        def write(rows: DataFrame, batch_id: int) -> None:
            source = rows.persist() if cached else rows
            for number in range(accounts):
                part = source.where(col("account") == f"account{number}")
                part.write.mode("append").parquet(str(root / f"account{number}"))
            if cached:
                source.unpersist()

        return write

    return made


def _partition_by(root: Path, accounts: int) -> Write:
    def write(rows: DataFrame, batch_id: int) -> None:
        rows.write.mode("append").partitionBy("account").parquet(str(root / "one"))

    return write


WAYS = (
    Way("one pass (Penstock)", None),
    Way("N passes, uncached", _n_pass(cached=False)),
    Way("N passes, cached", _n_pass(cached=True)),
    Way("partitionBy into one root", _partition_by),
)


def measure(spark: SparkSession, scratch: Path) -> list[Table]:
    """A table per number of accounts."""
    return [_measure(spark, scratch / f"accounts{accounts}", accounts) for accounts in (3, 8)]


def _measure(spark: SparkSession, scratch: Path, accounts: int) -> Table:
    write_input(spark, scratch / "input", rows=ROWS, accounts=accounts, files=FILES)
    expected = fingerprint(spark.read.parquet(str(scratch / "input")))
    seconds: dict[str, list[float]] = {way.name: [] for way in WAYS}
    for turn in range(ROUNDS + 1):  # the first round warms up
        for way in WAYS:
            took = _run(spark, way, scratch, accounts, expected)
            if turn:
                seconds[way.name].append(took)
    ours = median(seconds[WAYS[0].name])
    rows = [
        [name, f"{median(took):.1f}", f"{ROWS / median(took) / 1e6:.2f}", ratio(median(took) / ours)]
        for name, took in seconds.items()
    ]
    return Table(
        f"{ROWS:,} rows x 7 columns to {accounts} accounts, one batch",
        ["way", "seconds (median)", "million rows/s", "time against Penstock"],
        rows,
        "The whole query from start to end, checkpoint and commits included; Penstock's files are fsynced, Spark's are not.",
    )


def _run(spark: SparkSession, way: Way, scratch: Path, accounts: int, expected: Fingerprint) -> float:
    root = scratch / "out"
    shutil.rmtree(root, ignore_errors=True)
    frame = stream(spark, scratch / "input")
    started = time.perf_counter()
    if way.write is None:
        lake = penstock.Parquet(
            accounts={f"account{number}": root / f"account{number}" for number in range(accounts)}, route={"column": "account"}
        )
        delivery = penstock.Delivery("bench", home=root / "home", sinks={"lake": lake})
        delivery.start(frame.writeStream.trigger(availableNow=True)).awaitTermination()
    else:
        writer = frame.writeStream.foreachBatch(way.write(root, accounts)).option("checkpointLocation", str(root / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    took = time.perf_counter() - started
    roots = [root / "one"] if way.write is _partition_by else [root / f"account{number}" for number in range(accounts)]
    found = of_directories(spark, roots)
    assert found == expected, f"{way.name}: found {found}, expected {expected}"
    return took
