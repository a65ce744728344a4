"""Three sinks that take different rows and columns, in one pass, against a pass for each of them."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import penstock
from bench.content import fingerprint
from bench.inputs import expressions, stream, write_input
from bench.lakes import CACHED, UNCACHED
from bench.measuring import Bench, require_content
from bench.queries import batchwise, run_available
from bench.result import PENSTOCK, Case, Table

ROWS, FILES = 2_000_000, 8
SELECTIONS: Mapping[str, Mapping[str, Any]] = {
    "sold": {"where": "k >= 30", "select": ["id", "account", "price", "amount * 2 AS twice"]},
    "recent": {"where": "k < 30", "exclude": ["account"]},
    "names": {"select": ["id", "name", "at"]},
}


def measure(bench: Bench) -> Iterator[Table]:
    """One large batch."""
    root, rows = bench.scratch, bench.sized(ROWS, 200)
    write_input(bench.spark, root / "input", rows=rows, columns=expressions(), files=bench.sized(FILES, 1))
    read = bench.spark.read.parquet(str(root / "input"))
    expected = {name: fingerprint(_selected(read, name)) for name in SELECTIONS}

    def seconds(name: str, way: "Callable[[Path], Callable[[Any], Any]]") -> float:
        out = root / "out"
        shutil.rmtree(out, ignore_errors=True)
        started = time.perf_counter()
        run_available(stream(bench, root / "input"), way(out))
        took = time.perf_counter() - started
        found = {sink: fingerprint(bench.spark.read.parquet(str(out / sink))) for sink in SELECTIONS}
        require_content(found, expected, writer=name)
        return took

    ways = {PENSTOCK: _penstock, UNCACHED: _passes, CACHED: lambda out: _passes(out, cached=True)}
    yield Table(
        name="selections",
        title=f"{ROWS:,} rows x 7 columns to three sinks that take parts of them, one batch",
        unit="s",
        cases=(Case(name="three selections", figures=bench.in_rounds(ways, seconds, warm_up=True), amount=rows),),
        amounts="rows",
        note="Two take some of the rows, all of them some of the columns, one a computed one.",
    )


def _penstock(out: Path) -> "Callable[[Any], Any]":
    sinks = {name: penstock.Parquet(accounts={"all": out / name}, **taken) for name, taken in SELECTIONS.items()}
    return penstock.Delivery("bench", home=out / "home", sinks=sinks).start


def _passes(out: Path, *, cached: bool = False) -> "Callable[[Any], Any]":
    def write(rows: DataFrame, batch_id: int) -> None:
        source = rows.persist() if cached else rows
        for name in SELECTIONS:
            _selected(source, name).write.mode("append").parquet(str(out / name))
        if cached:
            source.unpersist()

    return batchwise(write, out / "checkpoint")


def _selected(rows: DataFrame, name: str) -> DataFrame:
    taken = SELECTIONS[name]
    chosen = rows.where(taken.get("where", "true"))
    return chosen.selectExpr(*taken["select"]) if "select" in taken else chosen.drop(*taken["exclude"])
