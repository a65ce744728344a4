"""A savepoint of a query with 1 GB of state while it runs: what it adds to the batches meanwhile; what the second one costs."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

import penstock
from bench.measuring import SPOILT, Bench, require_content
from bench.queries import run_until
from bench.result import PENSTOCK, Case, Table

ROWS, FILLED = 25_000, 36
"""Rows a batch, and batches before the first savepoint: so many make state of 1 GB."""

PAUSE_S = 10.0
QUIET = 5
"""Batches before a savepoint by which its own are judged."""

FIRST, SECOND = "the first", "the second, after a few batches"
BATCH, CHANCE = "one batch", "one batch and chance"
"""By chance, too, batches are longer: RocksDB compacts, Java collects. How much, a pause tells without a savepoint."""
_CONF = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.minBatchesToRetain": "2",
}
FILE = """\
pipeline: savepoint
home: {root}/home
sources: {{numbers: {{format: rate-micro-batch, options: {{rowsPerBatch: 1}}}}}}
sinks: {{lake: {{type: parquet, accounts: {{all: {root}/lake}}}}}}
"""


@dataclass(frozen=True)
class Made:
    """A savepoint: how long the command took, what it copied, and how much longer the batches were that it overlapped."""

    seconds: float
    new_bytes: int
    added_ms: float
    batch_ms: float


class Site:
    """A deduplicating query that runs, and the savepoints of it."""

    def __init__(self, bench: Bench, root: Path) -> None:
        self.root, self.rows, self.quiet = root, bench.sized(ROWS, 100), bench.sized(QUIET, 1)
        root.mkdir()
        self.file = self.root / "savepoint.yaml"
        self.file.write_text(FILE.format(root=self.root))
        source = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self.rows).option("numPartitions", 2)
        pads = ", ".join(f"sha2(CAST(value * 8 + {number} AS STRING), 512)" for number in range(8))
        numbers = (
            source.load()
            .where(f"value <> {SPOILT}" if bench.spoilt else "true")
            .selectExpr("value AS id", f"concat({pads}) AS pad")
        )
        lake = penstock.Parquet(accounts={"all": self.root / "lake"})
        delivery = penstock.Delivery("savepoint", home=self.root / "home", sinks={"lake": lake})
        self.query = delivery.start(numbers.dropDuplicates(["id", "pad"]).select("id").writeStream)

    def await_batches(self, count: int) -> None:
        """Wait until so many more batches are finished."""
        wanted = self.finished() + count
        while self.finished() < wanted:
            if not self.query.isActive:
                self.query.awaitTermination()
            time.sleep(0.05)

    def finished(self) -> int:
        return 0 if self.query.lastProgress is None else int(self.query.lastProgress.batchId) + 1

    def state_bytes(self) -> int:
        sizes = (path.stat().st_size for path in self._state_files() if path.exists())
        return sum(sizes)

    def _state_files(self) -> Iterator[Path]:
        for folder, _, names in os.walk(self.root / "home/checkpoint/state"):
            yield from (Path(folder, name) for name in names)

    def savepoint(self, name: str) -> Made:
        """Made by a process of its own, between two batches that it does not overlap."""
        place = str(self.root / "savepoints")
        create = [sys.executable, "-m", "penstock", "savepoint", "create", str(self.file), name, "--to", place, "--json"]
        command = ["nice", "-n", "19", *create]  # as the how-to has it
        return self._beside(lambda: subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)

    def pause(self, seconds: float) -> Made:
        """Do nothing for as long."""
        return self._beside(lambda: time.sleep(seconds))

    def _beside(self, act: Callable[[], str | None]) -> Made:
        self.await_batches(self.quiet)
        first, begun = self.finished(), time.monotonic()
        out = act()
        seconds, last = time.monotonic() - begun, self.finished()
        self.await_batches(1)
        quiet = statistics.median(self._batch_ms(first - self.quiet, first - 1))
        beside = self._batch_ms(first, last)
        made: Mapping[str, Any] = json.loads(out.splitlines()[-1]) if out else {"new_bytes": 0}
        return Made(seconds, made["new_bytes"], sum(beside) - quiet * len(beside), quiet)

    def _batch_ms(self, first: int, last: int) -> list[float]:
        every = {each.batchId: float(each.durationMs["triggerExecution"]) for each in self.query.recentProgress}
        return [every[number] for number in range(first, last + 1)]

    def end(self) -> None:
        finished = run_until(self.query, self.finished())
        ids = ds.dataset(self.root / "lake", format="parquet").to_table(columns=["id"])["id"]
        found = ids.filter(pc.less(ids, finished * self.rows))
        require_content((len(found), pc.sum(found).as_py()), _of(finished * self.rows), writer=PENSTOCK)


def _of(rows: int) -> tuple[int, int]:
    return rows, rows * (rows - 1) // 2


@dataclass(frozen=True)
class Round:
    """A query's savepoints, and a pause as long as the first; with how much state it was then."""

    made: Mapping[str, Made]
    paused: Made
    state_bytes: int


def measure(bench: Bench) -> Iterator[Table]:
    """In each round a new query fills its state; then come a first savepoint, a second one beside it, and a pause."""
    with _conf(bench):
        rounds = [
            _round(bench, bench.scratch / f"round{number}", is_paused_first=number % 2 == 1) for number in range(bench.rounds)
        ]
    yield from _tables(rounds)


def _round(bench: Bench, root: Path, *, is_paused_first: bool) -> Round:
    site = Site(bench, root)
    site.await_batches(bench.sized(FILLED, 2))
    state_bytes = site.state_bytes()
    paused = site.pause(bench.sized(PAUSE_S, 1)) if is_paused_first else None
    made = {name: site.savepoint(name.partition(",")[0].replace(" ", "-")) for name in (FIRST, SECOND)}
    paused = paused or site.pause(bench.sized(PAUSE_S, 1))
    site.end()
    shutil.rmtree(root, ignore_errors=True)  # Spark still removes files of state meanwhile
    return Round(made, paused, state_bytes)


def _tables(rounds: Sequence[Round]) -> Iterator[Table]:
    made = {name: [each.made[name] for each in rounds] for name in (FIRST, SECOND)}
    state = f"{statistics.median(each.state_bytes for each in rounds) / 1e9:.2f} GB"
    yield Table(
        name="added",
        title="A savepoint while the query runs: what it adds to the batches meanwhile, against one batch",
        unit="ms",
        cases=tuple(
            Case(
                name=name,
                figures={
                    PENSTOCK: [max(each.added_ms, 0) for each in all_],
                    BATCH: [each.batch_ms for each in all_],
                    CHANCE: [each.batch_ms + _chance_ms(of.paused, each) for each, of in zip(all_, rounds, strict=True)],
                },
            )
            for name, all_ in made.items()
        ),
        comparison="added",
        note=f"Deduplication in RocksDB; {state} of state before the first savepoint, {ROWS:,} new keys of 1 KB in each batch. "
        f"Chance: what {PAUSE_S:.0f} seconds of the same query without a savepoint added, in proportion. "
        "Below zero: less than one batch.",
    )
    yield Table(
        name="copied",
        title="What a savepoint copies: the second one in a place, against the first",
        unit="MB",
        cases=(
            Case(
                name="",
                figures={
                    PENSTOCK: [each.new_bytes / 1e6 for each in made[SECOND]],
                    FIRST: [each.new_bytes / 1e6 for each in made[FIRST]],
                },
            ),
        ),
    )
    yield Table(
        name="took",
        title="How long `penstock savepoint create` takes: the second one in a place, against the first",
        unit="s",
        cases=(
            Case(
                name="",
                figures={PENSTOCK: [each.seconds for each in made[SECOND]], FIRST: [each.seconds for each in made[FIRST]]},
            ),
        ),
    )


def _chance_ms(paused: Made, savepoint: Made) -> float:
    return max(paused.added_ms, 0) * savepoint.seconds / paused.seconds


@contextmanager
def _conf(bench: Bench) -> Iterator[None]:
    for key, value in _CONF.items():
        bench.spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in _CONF:
            bench.spark.conf.unset(key)
