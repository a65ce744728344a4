"""What exactly-once costs a batch: against the same pass without the protocol, and against Spark's noop sink.

The peer writes the same rows with the same pass (driver or tasks, as Penstock would choose) as Parquet straight to where readers
look: no staging, no ledger, no fsync. It is at-least-once and shows torn files.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import penstock
from bench.content import fingerprint, of_directories
from bench.inputs import counted, numbers
from bench.measuring import Bench, require_content
from bench.queries import batchwise, run_until, trigger_ms
from bench.result import PENSTOCK, Case, Table

ACCOUNTS = ("account0", "account1", "account2")
SIZES = (1_000, 10_000, 100_000)
BATCHES, WARM_UP = 10, 4
PEER, NOOP = "the same pass, at-least-once", "noop"

Way = Callable[[Path], Callable[[Any], Any]]
"""Given a directory, what starts a query of a writer."""


def measure(bench: Bench) -> Iterator[Table]:
    """The tax by batch size, and what is added to a micro-batch over noop."""
    ways: dict[str, Way] = {PENSTOCK: _penstock, PEER: _plain, NOOP: _noop}
    figures: dict[str, dict[str, list[float]]] = {}
    for size in SIZES[-1:] if bench.quick else SIZES:
        figures[f"{size:,} rows"] = _figures(bench, bench.sized(size, 100), ways, warm_up=not figures)
    empty = _figures(bench, bench.sized(1_000, 100), {PENSTOCK: _penstock, NOOP: _noop}, empty=True)
    yield Table(
        name="tax",
        title="Exactly-once tax, three accounts, a batch (whole triggers)",
        unit="ms",
        cases=tuple(_against(name, found, PEER) for name, found in figures.items()),
        comparison="tax",
        note=f"The peer stages nothing, remembers nothing and syncs nothing. "
        f"A round is the median of {BATCHES} batches of a query.",
    )
    yield Table(
        name="noop",
        title="Added to a micro-batch over Spark's noop sink",
        unit="ms",
        cases=tuple(
            _against(name, found, NOOP) for name, found in {**figures, "empty (1,000 rows read, none left)": empty}.items()
        ),
        comparison="added",
    )


def _against(name: str, figures: dict[str, list[float]], peer: str) -> Case:
    return Case(name=name, figures={PENSTOCK: figures[PENSTOCK], peer: figures[peer]})


def _figures(
    bench: Bench, size: int, ways: "dict[str, Way]", *, warm_up: bool = False, empty: bool = False
) -> dict[str, list[float]]:
    return bench.in_rounds(ways, lambda name, way: _batch_ms(bench, size, name, way, empty=empty), warm_up=warm_up)


def _batch_ms(bench: Bench, size: int, name: str, way: Way, *, empty: bool) -> float:
    root = bench.scratch / "tax"
    shutil.rmtree(root, ignore_errors=True)
    frame = counted(bench, size)
    query = way(root)((frame.where("id < 0") if empty else frame).writeStream)
    finished = run_until(query, bench.sized(WARM_UP + BATCHES, 2))
    if name != NOOP and not empty:
        _require_batches(bench, root, finished * size, name)
    return trigger_ms(query, warm_up=bench.sized(WARM_UP, 1))


def _require_batches(bench: Bench, root: Path, rows: int, writer: str) -> None:
    """The rows of all finished batches; the one that was cut by the stop may be there in part, where the peer writes it."""
    found = of_directories(bench.spark, [root / name for name in ACCOUNTS], where=f"id < {rows}")
    require_content(found, fingerprint(numbers(bench.spark.range(rows))), writer=writer)


# --- the writers


def _penstock(root: Path) -> "Callable[[Any], Any]":
    lake = penstock.Parquet(accounts={name: root / name for name in ACCOUNTS}, route={"column": "account"})
    return penstock.Delivery("bench", home=root / "home", sinks={"lake": lake}).start


def _noop(root: Path) -> "Callable[[Any], Any]":
    return lambda writer: writer.format("noop").option("checkpointLocation", str(root / "home/checkpoint")).start()


def _plain(root: Path) -> "Callable[[Any], Any]":
    for name in ACCOUNTS:
        (root / name).mkdir(parents=True)

    def write_all(table: pa.Table, name: str) -> None:
        for account in ACCOUNTS:
            part = table.filter(pc.equal(table["account"], account))
            if part.num_rows:
                pq.write_table(part, root / account / f"{name}.parquet", compression="zstd")

    def by_task(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        whole = pa.Table.from_batches(list(batches))
        write_all(whole, f"task-{context.taskAttemptId()}")
        yield pa.RecordBatch.from_pydict({"rows": [whole.num_rows]})

    def write(rows: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            rows.mapInArrow(by_task, "rows LONG").collect()
        else:
            write_all(rows.toArrow(), f"batch-{batch_id}")

    return batchwise(write, root / "home/checkpoint")
