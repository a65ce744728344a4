"""From starting the process to the first finished batch: Penstock against a script with Spark's noop sink, same session."""

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.table import Table, median

ROUNDS = 5

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from penstock.run.java import use_java
{imports}
use_java()
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
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

PENSTOCK = """
lake = penstock.Parquet(accounts={{"one": "{root}/one"}})
query = penstock.Delivery("restart", home="{root}/home", sinks={{"lake": lake}}).start(frame.writeStream)
"""


def measure(scratch: Path) -> list[Table]:
    """The scripts in turns, each killed after its first batch, so that every start but the first recovers."""
    ways = {"noop": ("", NOOP), "foreachBatch that collects": ("", COLLECT), "Penstock": ("import penstock", PENSTOCK)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, (imports, start) in ways.items():
            took = _first_batch_s(SCRIPT.format(imports=imports, start=start.format(root=scratch / name)))
            if turn:
                seconds[name].append(took)
    noop = median(seconds["noop"])
    rows = [[name, f"{median(took):.2f}", f"{median(took) - noop:+.2f}"] for name, took in seconds.items()]
    return [
        Table(
            "Restart: seconds from process start to the first finished batch after a SIGKILL (median)",
            ["sink", "seconds", "added"],
            rows,
            note="The second row is what Spark's own `foreachBatch` and `toArrow` take, with a function that does nothing else.",
        )
    ]


def _first_batch_s(script: str) -> float:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    took = time.perf_counter() - started
    process.kill()
    process.wait()
    assert line.startswith("ready"), line
    return took
