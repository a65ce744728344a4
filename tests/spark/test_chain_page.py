"""The page about chains, followed as it stands: both pipelines are killed, the first one is rewound, and every row comes once."""

import json
import os
import runpy
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.page import Page, run, run_beside

PAGE = Page("chain")
FLIGHTS, DELAYS, STATUS, OFFSETS = PAGE.commands[:4]
BACK, *AGAIN = PAGE.commands[4:]
ROWS = 6


def fill(directory: Path) -> None:
    for name, text in zip(("flights", "delays"), PAGE.blocks("yaml"), strict=True):
        (directory / f"{name}.yaml").write_text(text)
    (directory / "incoming").mkdir()
    for file in range(4):
        lines = [f"{number},{'EWR' if number % 2 else 'JFK'},{number % 3},{number % 4 - 1}" for number in numbers(file)]
        path = directory / "incoming" / f"{file}.csv"
        path.write_text("id,origin,month,delay\n" + "".join(f"{line}\n" for line in lines))
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))  # Spark reads them in this order


def numbers(*files: int) -> list[int]:
    return [file * ROWS + row for file in files for row in range(ROWS)]


def late(*files: int) -> "Counter[int]":
    return Counter(number for number in numbers(*files) if number % 4 > 1)


def delivered(directory: Path) -> "Counter[int]":
    with sqlite3.connect(directory / "delays.db") as connection:
        return Counter(number for (number,) in connection.execute("SELECT id FROM delays"))


def test_the_page_works_though_both_pipelines_are_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    killed = run(tmp_path, FLIGHTS, faults="ledger.sqlite_commit=kill@4")  # its batches 0 and 1 are published
    assert killed.returncode == -9, killed.stderr
    killed = run(tmp_path, DELAYS, faults="sqlite.commit=kill", forked=True)
    assert killed.returncode == -9, killed.stderr
    done = run_beside(tmp_path, DELAYS)
    assert done.returncode == 0, done.stderr
    assert delivered(tmp_path) == late(0, 1)
    for command in (FLIGHTS, DELAYS):
        done = run_beside(tmp_path, command)
        assert done.returncode == 0, done.stderr
    assert delivered(tmp_path) == late(0, 1, 2, 3)

    status = run_beside(tmp_path, STATUS)
    assert "flights/lake" in status.stdout
    [table] = json.loads(run_beside(tmp_path, f"{STATUS.strip()} --json").stdout)["tables"]
    assert (table["records"], table["lost"]) == (0, 0)
    read = run_beside(tmp_path, f"{OFFSETS.strip()} --json").stdout
    assert '\\"batch\\": 1' in read or '"batch": 1' in read or '\\"batch\\":1' in read, read
    assert "logOffset" in read, "what the first pipeline had read itself"

    assert run_beside(tmp_path, BACK).returncode == 0
    refused = run_beside(tmp_path, DELAYS)
    assert refused.returncode == 3, refused.stderr
    assert "has read batches 2 to 3" in refused.stderr
    for command in AGAIN:
        done = run_beside(tmp_path, command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert delivered(tmp_path) == late(0, 1, 2, 3)

    [block] = PAGE.blocks("python")
    monkeypatch.chdir(tmp_path)
    for name in ("flights.yaml", "state/spark", "late"):
        block = block.replace(f'"{name}"', repr(str(tmp_path / name)))  # Java's directory is another one
    (tmp_path / "plain_spark.py").write_text(block)
    runpy.run_path(str(tmp_path / "plain_spark.py"))
    assert Counter(row.id for row in spark.read.parquet(str(tmp_path / "late")).collect()) == late(0, 1, 2, 3)
