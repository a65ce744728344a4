"""From starting the process to the first finished batch: Penstock against a script with Spark's noop sink, same session."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from tests.crash.killing import await_session_end

from bench.measuring import SPOILT, Bench, require_content
from bench.result import PENSTOCK, Case, Table

ROWS = 1_000

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from penstock.run.java import use_java
{imports}
use_java()
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", {rows}).load().where("{where}")
{start}
while query.lastProgress is None:
    query.awaitTermination(0.01)
print("ready", query.lastProgress.batchId, flush=True)
sys.stdin.read()
"""

NOOP = """
query = frame.writeStream.format("noop").option("checkpointLocation", "{root}/checkpoint").start()
"""

COLLECT = """
query = (
    frame.writeStream.foreachBatch(lambda rows, _: rows.toArrow()).option("checkpointLocation", "{root}/checkpoint").start()
)
"""

DELIVER = """
lake = penstock.Parquet(accounts={{"one": "{root}/one"}})
query = penstock.Delivery("restart", home="{root}/home", sinks={{"lake": lake}}).start(frame.writeStream)
"""


def measure(bench: Bench) -> Iterator[Table]:
    """The scripts in turns, each killed after its first batch, so that every start but the first recovers."""
    ways = {PENSTOCK: ("import penstock", DELIVER), "noop": ("", NOOP), "`foreachBatch` that collects": ("", COLLECT)}
    scratch = {name: bench.scratch / f"way{number}" for number, name in enumerate(ways)}
    where = f"value <> {SPOILT}" if bench.spoilt else "true"

    def first_batch_s(name: str, way: tuple[str, str]) -> float:
        imports, start = way
        took, batch = _first_batch(SCRIPT.format(imports=imports, rows=ROWS, where=where, start=start.format(root=scratch[name])))
        if name == PENSTOCK:
            _require_batches(scratch[name] / "one", batch + 1)
        return took

    figures = bench.in_rounds(ways, first_batch_s, warm_up=True)
    yield Table(
        name="restart",
        title="Restart: from the start of the process to its first finished batch, after a SIGKILL",
        unit="s",
        cases=(Case(name="", figures=figures),),
        comparison="added",
        note="The second row is what Spark's own `foreachBatch` and `toArrow` take, with a function that does nothing else.",
    )


def _first_batch(script: str) -> tuple[float, int]:
    """Seconds, and the number of the batch; the process is killed then, and its JVM and workers are waited for."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    took = time.perf_counter() - started
    process.kill()
    process.wait()
    await_session_end(process.pid)
    assert line.startswith("ready"), line
    return took, int(line.split()[1])


def _require_batches(account: Path, finished: int) -> None:
    """Raise ContentError unless the rows of the finished batches are there once; the kill may have left the next one's."""
    table = pq.read_table(account, columns=["value"])
    found = sorted(value for value in table.column("value").to_pylist() if value < finished * ROWS)
    require_content(found == list(range(finished * ROWS)), expected=True, writer=PENSTOCK)
