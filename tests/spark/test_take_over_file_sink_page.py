"""The page about taking over Spark's file sink, as it stands: plain Spark delivers, then Penstock goes on in its directory."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.crash import shared_java
from tests.spark.page import Page, run_beside

PAGE = Page("take_over_file_sink")
JOB = PAGE.blocks("python")[0]
SESSION = """
from pyspark.sql import SparkSession as Session
run(Session.builder.master("local[2]").getOrCreate())
"""


def put(directory: Path, first: int) -> None:
    lines = [
        json.dumps({"id": number, "region": ("EU", "US")[number % 2], "day": number % 2}) for number in range(first, first + 4)
    ]
    (directory / "incoming").mkdir(exist_ok=True)
    (directory / f"incoming/{first}.json").write_text("\n".join(lines))


def job(directory: Path) -> None:
    assert shared_java.run(["job.py"], directory=directory).returncode == 0


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """The job has delivered a batch, of which a failed task left a file."""
    # Spark resolves it by the working directory of its Java process, which other tests began
    text = JOB.replace('"old/checkpoint"', repr(f"{tmp_path}/old/checkpoint")).replace('"lake"', repr(f"{tmp_path}/lake"))
    (tmp_path / "job.py").write_text(text + SESSION)
    (tmp_path / "orders.yaml").write_text(PAGE.blocks("yaml")[0])
    put(tmp_path, 0)
    job(tmp_path)
    whole = next((tmp_path / "lake").glob("day=1/*.parquet"))
    shutil.copy(whole, whole.with_name("part-00000-6a1c2b7e-0000-4000-8000-000000000000.c000.snappy.parquet"))
    return tmp_path


def ids(directory: Path) -> Counter[int]:
    """By a reader that lists the directory."""
    return Counter(row[0] for row in duckdb.sql(f"SELECT id FROM read_parquet('{directory}/lake/*/*.parquet')").fetchall())


def test_the_page_goes_on_in_the_directory_of_sparks_file_sink(spark: SparkSession, ran: Path) -> None:
    put(ran, 4)
    assert ids(ran) == Counter([0, 1, 2, 3, 1, 3])  # what the failed task left
    ask, adopt, run, verify = PAGE.commands
    asked = run_beside(ran, ask)
    assert asked.returncode == 0, asked.stderr
    shown = re.findall(r"^```\n(Query .*?)^```", PAGE.text, re.MULTILINE | re.DOTALL)[0]
    parts = [re.escape(part.strip()) for part in " ".join(shown.split()).split("…")]
    assert re.fullmatch(r"\s*".join(f"{part}.*?" for part in parts)[:-3], " ".join(asked.stdout.split())), asked.stdout
    for command in (adopt, run):
        done = run_beside(ran, command)
        assert done.returncode == 0, done.stdout + done.stderr
    verified = run_beside(ran, verify)
    assert verified.returncode == 0
    assert "lake: 2 files of 4 rows that it was taken over with, by name and size." in " ".join(verified.stdout.split())
    everything = Counter(range(8))
    assert ids(ran) == everything
    assert Counter(row.id for row in spark.read.parquet(f"{ran}/lake").collect()) == everything


def test_a_batch_that_spark_did_not_commit_is_committed_as_the_remedy_says(ran: Path) -> None:
    commit = ran / "old/checkpoint/commits/0"
    put(ran, 4)
    job(ran)
    (ran / "old/checkpoint/commits/1").unlink()
    (ran / "old/checkpoint/commits/.1.crc").unlink(missing_ok=True)
    assert commit.exists()
    refused = run_beside(ran, f"{PAGE.commands[1]}")
    assert refused.returncode == 3
    assert "the query ran one batch further than its commit log" in " ".join(refused.stderr.split())
    job(ran)  # the remedy
    for command in PAGE.commands[1:]:
        done = run_beside(ran, command)
        assert done.returncode == 0, done.stdout + done.stderr
    assert ids(ran) == Counter(range(8))
