"""A savepoint of a query with 1 GB of state while it runs: what it adds to the batches meanwhile; what the second one costs."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
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

ROWS, FILLED, ROUNDS = 25_000, 40, 3
"""Rows a batch, batches before the first savepoint, and rounds of two savepoints: more would double the state."""

QUIET = 3
"""Batches before a savepoint by which its own are judged."""

FIRST, SECOND = "the first", "the second, after a few batches"
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

    def __init__(self, bench: Bench) -> None:
        self.root, self.rows = bench.scratch, bench.sized(ROWS, 100)
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

    def savepoint(self, name: str, place: Path) -> Made:
        """Made by a process of its own, between two batches that it does not overlap."""
        self.await_batches(QUIET)
        first, begun = self.finished(), time.monotonic()
        create = [sys.executable, "-m", "penstock", "savepoint", "create", str(self.file), name, "--to", str(place), "--json"]
        command = ["nice", *create]  # as the how-to has it
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        seconds, last = time.monotonic() - begun, self.finished()
        self.await_batches(1)
        quiet = statistics.median(self._batch_ms(first - QUIET, first - 1))
        beside = self._batch_ms(first, last)
        made: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
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


def measure(bench: Bench) -> Iterator[Table]:
    """In each round a first savepoint in a new place, and a second one beside it."""
    made: dict[str, list[Made]] = {FIRST: [], SECOND: []}
    with _conf(bench):
        site = Site(bench)
        site.await_batches(bench.sized(FILLED, 2))
        state_bytes = site.state_bytes()
        for number in range(min(bench.rounds, ROUNDS)):
            place = bench.scratch / f"savepoints{number}"
            for name, each in made.items():
                each.append(site.savepoint(name.partition(",")[0].replace(" ", "-"), place))
            shutil.rmtree(place)
        site.end()
    yield from _tables(made, state_bytes)


def _tables(made: Mapping[str, list[Made]], state_bytes: int) -> Iterator[Table]:
    state = f"{state_bytes / 1e9:.2f} GB"
    yield Table(
        name="added",
        title="A savepoint while the query runs: what it adds to the batches meanwhile, against one batch",
        unit="ms",
        cases=tuple(
            Case(
                name=name,
                figures={PENSTOCK: [max(each.added_ms, 0) for each in all_], "one batch": [each.batch_ms for each in all_]},
            )
            for name, all_ in made.items()
        ),
        comparison="added",
        note=f"Deduplication in RocksDB; {state} of state before the first savepoint, {ROWS:,} new keys of 1 KB in each batch. "
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


@contextmanager
def _conf(bench: Bench) -> Iterator[None]:
    for key, value in _CONF.items():
        bench.spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in _CONF:
            bench.spark.conf.unset(key)
