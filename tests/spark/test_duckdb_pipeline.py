"""The page about DuckDB, command by command: killed in the middle, finished by the next run, read by DuckDB itself."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb

from tests.architecture.reading import ROOT
from tests.spark.test_readme import feed, lake

PAGE = (ROOT / "docs" / "howto" / "duckdb.md").read_text()
PIPELINE, QUERIES = (re.search(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1] for kind in ("yaml", "sql"))  # type: ignore[index]
COMMANDS = [line.split("#")[0] for line in re.findall(r"^penstock .*$", PAGE, re.MULTILINE)]


def run(directory: Path, command: str, *, faults: str = "") -> "subprocess.CompletedProcess[str]":
    words, environment = [sys.executable, "-m", *shlex.split(command)], {**os.environ, "PENSTOCK_FAULTS": faults}
    return subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def sql(directory: Path, statement: str) -> list[tuple[object, ...]]:
    with duckdb.connect(directory / "analytics.duckdb") as connection:
        return connection.execute(statement).fetchall()


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "duckdb.yaml").write_text(PIPELINE)
    sent = feed(tmp_path / "incoming")
    assert run(tmp_path, "penstock run duckdb.yaml", faults="duckdb.commit=kill").returncode != 0
    assert sql(tmp_path, "SELECT * FROM flights") == []
    for command in COMMANDS:
        done = run(tmp_path, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert Counter(sql(tmp_path, "SELECT id, origin, month, delay FROM flights")) == sent
    assert lake(tmp_path / "lake") == sent
    for query in QUERIES.split(";\n"):
        if query.strip():
            assert sql(tmp_path, query)
    again = run(tmp_path, "penstock run duckdb.yaml --json")
    assert json.loads(again.stdout.splitlines()[-1])["sinks"]["analytics"]["rows"] == 0
    sql(tmp_path, "UPDATE flights SET delay = 1000 WHERE id = 1")
    verified = run(tmp_path, "penstock verify duckdb.yaml --json")
    assert verified.returncode == 5
    assert not json.loads(verified.stdout)["sinks"]["analytics"]["ok"]
