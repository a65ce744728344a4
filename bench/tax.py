"""What exactly-once costs a batch: against the same pass without the protocol, and against Spark's noop sink.

The peer writes the same rows with the same pass (driver or tasks, as Penstock would choose) as Parquet straight to where readers
look: no staging, no ledger, no fsync. It is at-least-once and shows torn files.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import penstock
from bench.content import of_directories
from bench.session import counted
from bench.table import Table, median, ratio
from bench.turns import in_turns

ACCOUNTS = ("account0", "account1", "account2")
SIZES = (1_000, 10_000, 100_000)
ROUNDS, BATCHES, WARM_UP = 3, 25, 12

Way = Callable[[DataFrame, Path], Callable[[], object]]


def measure(spark: SparkSession, scratch: Path) -> list[Table]:
    """The tax by batch size, and what is added to a micro-batch over noop."""
    rows, added = [], []
    for size in SIZES:
        ours, plain, noop = _medians(spark, scratch, size, (_penstock, _plain, None))
        rows.append([f"{size:,}", f"{ours:.0f}", f"{plain:.0f}", f"{100 * (ours / plain - 1):+.1f} %", ratio(plain / ours)])
        added.append([f"{size:,} rows", f"{ours:.0f}", f"{noop:.0f}", f"{ours - noop:+.0f}"])
    ours, noop = _medians(spark, scratch, 1_000, (_penstock, None), empty=True)
    added.append(["empty (1,000 rows read, none left)", f"{ours:.0f}", f"{noop:.0f}", f"{ours - noop:+.0f}"])
    return [
        Table(
            "Exactly-once tax, three accounts, milliseconds per batch (median of whole triggers)",
            ["rows a batch", "Penstock", "the same pass, at-least-once", "tax", "speed"],
            rows,
            f"The peer stages nothing, remembers nothing and syncs nothing. {ROUNDS} rounds in turns of {BATCHES} batches each.",
        ),
        Table(
            "Added to a micro-batch over Spark's noop sink, milliseconds (median)", ["batch", "Penstock", "noop", "added"], added
        ),
    ]


def _medians(spark: SparkSession, scratch: Path, size: int, ways: "Sequence[Way | None]", *, empty: bool = False) -> list[float]:
    """The median batch of each way: the machine's weather changes, and hits all of them alike."""
    taken: list[list[float]] = [[] for _ in ways]
    for number, way in in_turns(dict(enumerate(ways)), ROUNDS):
        taken[number].extend(_batches_ms(spark, scratch, size, way, empty=empty))
    return [median(times) for times in taken]


def _penstock(frame: DataFrame, root: Path) -> "Callable[[], object]":
    lake = penstock.Parquet(accounts={name: root / name for name in ACCOUNTS}, route={"column": "account"})
    delivery = penstock.Delivery("bench", home=root / "home", sinks={"lake": lake})
    return lambda: delivery.start(frame.writeStream)


def _plain(frame: DataFrame, root: Path) -> "Callable[[], object]":
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

    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(root / "home/checkpoint"))
    return writer.start


def _batches_ms(spark: SparkSession, scratch: Path, size: int, way: "Way | None", *, empty: bool) -> list[float]:
    root = scratch / "tax"
    shutil.rmtree(root, ignore_errors=True)
    frame = counted(spark, size)
    frame = frame.where("id < 0") if empty else frame
    if way is None:
        start = frame.writeStream.format("noop").option("checkpointLocation", str(root / "home/checkpoint")).start
    else:
        start = way(frame, root)
    query = start()
    while (query.lastProgress is None or query.lastProgress.batchId < WARM_UP + BATCHES) and query.isActive:  # type: ignore[attr-defined]
        time.sleep(0.1)
    query.stop()  # type: ignore[attr-defined]
    progress = [each for each in query.recentProgress if each.batchId >= WARM_UP]  # type: ignore[attr-defined]
    if way is not None and not empty:
        _verify(spark, root, size)
    return [each.durationMs["triggerExecution"] for each in progress]


def _verify(spark: SparkSession, root: Path, size: int) -> None:
    """What is there is a whole number of batches and exactly their rows."""
    found = of_directories(spark, [root / name for name in ACCOUNTS])
    assert found[0] % size == 0, found
    batches = found[0] // size
    ids = spark.read.parquet(*[str(root / name) for name in ACCOUNTS]).agg({"id": "sum"}).first()
    assert ids is not None
    assert ids[0] == sum(range(batches * size)), (ids, batches)
