"""The page about any driver, command by command: killed in the middle, finished by the next run, read by another client."""

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from penstock.sink.dbapi import statements
from tests.architecture.reading import ROOT
from tests.spark.test_readme import feed, lake

PAGE = (ROOT / "docs" / "howto" / "dbapi.md").read_text()
PIPELINE, QUERIES = (re.search(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1] for kind in ("yaml", "sql"))  # type: ignore[index]
COMMANDS = [line.split("#")[0] for line in re.findall(r"^penstock .*$", PAGE, re.MULTILINE)]


def run(directory: Path, command: str, *, faults: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PENSTOCK_FAULTS": faults, "SHOP": str(directory / "shop.db")}
    words = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def sql(directory: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / "shop.db")) as connection, connection:
        return connection.execute(statement).fetchall()


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "dbapi.yaml").write_text(PIPELINE)
    sent = feed(tmp_path / "incoming")
    assert run(tmp_path, "penstock run dbapi.yaml", faults="dbapi.commit=kill").returncode != 0
    assert sql(tmp_path, "SELECT * FROM flights") == []
    for command in COMMANDS:
        done = run(tmp_path, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert Counter(sql(tmp_path, "SELECT id, origin, month, delay FROM flights")) == lake(tmp_path / "lake") == sent
    for query in re.findall(r"`(SELECT [^`]*)`", PAGE):
        assert sql(tmp_path, query)
    sql(tmp_path, "UPDATE flights SET delay = 1000 WHERE id = 1")
    verified = run(tmp_path, "penstock verify dbapi.yaml --json")
    assert verified.returncode == 5
    assert not json.loads(verified.stdout)["sinks"]["shop"]["ok"]


def test_the_page_shows_the_tables_as_they_are_made() -> None:
    assert QUERIES.split(";\n")[:2] == [statements.CREATE_MARKER_TABLE, statements.CREATE_BATCH_TABLE]
