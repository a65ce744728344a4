"""The page about taking over a `foreachBatch` job, as it stands: plain Spark delivers, then Penstock goes on."""

import json
import sqlite3
from pathlib import Path

import duckdb

from tests.crash import shared_java
from tests.spark.page import Page, run_beside

PAGE = Page("take_over_in_place")
JOB, TAKEN_OVER = PAGE.blocks("python")
SESSION = """
from pyspark.sql import SparkSession as Session
run(Session.builder.master("local[2]").getOrCreate())
"""


def put(directory: Path, first: int) -> None:
    """Two files of three orders each."""
    for begin in (first, first + 3):
        lines = [json.dumps({"id": number, "region": ("EU", "US")[number % 2], "day": 1}) for number in range(begin, begin + 3)]
        (directory / "incoming").mkdir(exist_ok=True)
        (directory / f"incoming/{begin}.json").write_text("\n".join(lines))


def test_the_page_goes_on_where_the_job_stopped(tmp_path: Path) -> None:
    # Spark resolves it by the working directory of its Java process, which other tests began
    (tmp_path / "job.py").write_text(JOB.replace('"checkpoints/orders"', repr(f"{tmp_path}/checkpoints/orders")) + SESSION)
    (tmp_path / "take_over.py").write_text(TAKEN_OVER + SESSION)
    (tmp_path / "orders.yaml").write_text(PAGE.blocks("yaml")[0])
    put(tmp_path, 0)
    assert shared_java.run(["job.py"], directory=tmp_path).returncode == 0
    put(tmp_path, 6)
    refused = shared_java.run(["take_over.py"], directory=tmp_path)
    assert "BatchGap: The ledger is empty" in refused.stderr
    *adoption, _, _ = PAGE.commands
    for command in adoption:
        assert run_beside(tmp_path, command).returncode == 0
    taken_over = shared_java.run(["take_over.py"], directory=tmp_path)
    assert taken_over.returncode == 0, taken_over.stderr
    lake = duckdb.sql(
        f"SELECT id, region FROM read_parquet('{tmp_path}/lake/*/*/*.parquet', filename = true), "
        "LATERAL (SELECT split_part(filename, '/', -3) AS region) ORDER BY id"
    ).fetchall()
    assert lake == [(number, ("EU", "US")[number % 2]) for number in range(12)]
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        assert connection.execute("SELECT id, region FROM orders ORDER BY id").fetchall() == lake
    verified = run_beside(tmp_path, PAGE.commands[-1])
    assert (verified.returncode, "files of others left out, as existing_rows: keep wants it." in verified.stdout) == (0, True)
