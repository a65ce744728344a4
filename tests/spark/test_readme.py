"""Every snippet of the README is run as it stands."""

import csv
import os
import random
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset
import pytest

from penstock.run.pipeline import Pipeline
from tests.architecture.reading import ROOT
from tests.crash import shared_java
from tests.seed import SEED

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
AROUND_PYTHON = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").getOrCreate()
df = spark.readStream.schema("id INT, origin STRING, month INT, delay DOUBLE").option("header", True).csv("incoming")
{first}
query.awaitTermination()
{second}
query.processAllAvailable()
query.stop()
"""


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


def feed(incoming: Path) -> "Counter[tuple[object, ...]]":
    """Some CSV files and what is in them."""
    print("seed", SEED)
    generator = random.Random(SEED)
    rows = [
        (number, generator.choice(["EWR", "JFK", "LGA"]), generator.randint(1, 12), generator.choice([None, 0.5, -3.25]))
        for number in range(900)
    ]
    incoming.mkdir()
    for part in range(3):
        with (incoming / f"part-{part}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("id", "origin", "month", "delay"), *rows[part::3]])
    return Counter(rows)


def lake(folder: Path) -> "Counter[tuple[object, ...]]":
    data = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").to_table()
    return Counter(zip(*(data[name].to_pylist() for name in ("id", "origin", "month", "delay")), strict=True))


def test_the_pipeline_file_and_the_commands(tmp_path: Path) -> None:
    sent = feed(tmp_path / "incoming")
    (tmp_path / "flights.yaml").write_text(blocks("yaml")[0])
    commands = [line.split("#")[0] for block in blocks("sh") for line in block.splitlines() if line.startswith("penstock")]
    assert len(commands) >= 4
    for command in commands:
        done = shared_java.run(["-m", *shlex.split(command)], directory=tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    delivered = sum((lake(tmp_path / "lake" / account) for account in ("ewr", "jfk", "lga")), Counter())
    assert delivered == Counter({row: count for row, count in sent.items() if row[3] is not None})


def test_the_drop_in(tmp_path: Path) -> None:
    sent = feed(tmp_path / "incoming")
    first, second = blocks("python")
    (tmp_path / "job.py").write_text(AROUND_PYTHON.format(first=first, second=second))
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}  # and Java, too, is started as a user starts it
    done = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert lake(tmp_path / "lake") == sent
    (tmp_path / "flights.yaml").write_text(blocks("yaml")[1])
    assert Pipeline.from_file(tmp_path / "flights.yaml").verify().ok


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines() if line.startswith("make ")])
def test_the_make_targets_exist(line: str) -> None:
    subprocess.run(["make", "-n", *shlex.split(line.partition("#")[0])[1:]], cwd=ROOT, capture_output=True, check=True)


def test_the_extras_exist() -> None:
    named = {name for extras in re.findall(r"(?:penstock|whl\))\[([\w,]+)\]", README) for name in extras.split(",")}
    declared = re.findall(
        r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2], re.M
    )
    assert named
    assert named <= set(declared)
