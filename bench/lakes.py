"""Ways to write one large batch as Parquet below a directory: Penstock in one pass, and what Spark offers."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

import penstock
from bench.content import Fingerprint, of_directories
from bench.inputs import COLUMNS, stream
from bench.measuring import Bench, require_content
from bench.queries import batchwise, run_available
from bench.result import PENSTOCK

ONE_ROOT, FILE_SINK = "`partitionBy` into one root", "Spark's own file sink"
UNCACHED, CACHED = "N passes, uncached", "N passes, cached"


@dataclass(frozen=True, kw_only=True)
class Lake:
    """Where one large batch goes: to accounts by the column `account`, or to a single one, in partitions or not."""

    root: Path
    accounts: int = 1
    partition_by: tuple[str, ...] = ()

    @property
    def out(self) -> Path:
        """Emptied before each run."""
        return self.root / "out"

    @property
    def names(self) -> list[str]:
        """Of the accounts."""
        return [f"account{number}" for number in range(self.accounts)]

    @property
    def folders(self) -> list[str]:
        """The columns by which Spark's writers make the same division."""
        return [*(["account"] if self.accounts > 1 else []), *self.partition_by]


Way = Callable[[Lake], Callable[[Any], Any]]
"""Given a lake, what starts a query of a writer."""


def seconds(bench: Bench, lake: Lake, name: str, way: Way, *, expected: Fingerprint, columns: str = COLUMNS) -> float:
    """The whole query over the files of `lake.root / "input"`, its content compared."""
    shutil.rmtree(lake.out, ignore_errors=True)
    frame = stream(bench, lake.root / "input", columns=columns)
    started = time.perf_counter()
    run_available(frame, way(lake))
    took = time.perf_counter() - started
    roots = [lake.out / "one"] if name in {ONE_ROOT, FILE_SINK} else [lake.out / account for account in lake.names]
    require_content(of_directories(bench.spark, roots, columns=columns), expected, writer=name)
    return took


def _penstock(lake: Lake) -> "Callable[[Any], Any]":
    routed: Mapping[str, Any] = {"route": {"column": "account"}} if lake.accounts > 1 else {}
    divided: Mapping[str, Any] = {"partition_by": list(lake.partition_by)} if lake.partition_by else {}
    sink = penstock.Parquet(accounts={name: lake.out / name for name in lake.names}, **routed, **divided)
    return penstock.Delivery("bench", home=lake.out / "home", sinks={"lake": sink}).start


def _n_passes(lake: Lake, *, cached: bool) -> "Callable[[Any], Any]":
    def write(rows: DataFrame, batch_id: int) -> None:
        source = rows.persist() if cached else rows
        for name in lake.names:
            source.where(col("account") == name).write.mode("append").parquet(str(lake.out / name))
        if cached:
            source.unpersist()

    return batchwise(write, lake.out / "checkpoint")


def _one_root(lake: Lake) -> "Callable[[Any], Any]":
    def write(rows: DataFrame, batch_id: int) -> None:
        _partitioned(rows.write.mode("append"), lake.folders).parquet(str(lake.out / "one"))

    return batchwise(write, lake.out / "checkpoint")


def _file_sink(lake: Lake) -> "Callable[[Any], Any]":
    places = {"path": str(lake.out / "one"), "checkpointLocation": str(lake.out / "checkpoint")}
    return lambda writer: _partitioned(writer.format("parquet"), lake.folders).options(**places).start()


def _partitioned(writer: Any, folders: Sequence[str]) -> Any:
    return writer.partitionBy(*folders) if folders else writer


SPARKS: Mapping[str, Way] = {PENSTOCK: _penstock, ONE_ROOT: _one_root, FILE_SINK: _file_sink}
PASSES: Mapping[str, Way] = {
    UNCACHED: lambda lake: _n_passes(lake, cached=False),
    CACHED: lambda lake: _n_passes(lake, cached=True),
}
