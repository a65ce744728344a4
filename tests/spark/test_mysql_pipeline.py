"""The command line from CSV files into directories and MariaDB: stopped, restarted, refused, looked at."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path

from tests.architecture.reading import ROOT
from tests.servers.fixtures import server
from tests.spark.test_postgres_pipeline import NOTHING_SECRET, assert_told
from tests.spark.test_readme import feed, lake

PAGE = (ROOT / "docs" / "howto" / "mysql.md").read_text()
(PIPELINE, LEDGER, _), (QUERIES, QUERIES_OF_LEDGER, _) = (
    re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for kind in ("yaml", "sql")
)
COMMANDS = [line.split("#")[0] for line in re.findall(r"^penstock .*$", PAGE, re.MULTILINE)]
_numbers = count()


class Place:
    """A directory with the page's pipeline in it, and a database of its own."""

    def __init__(self, directory: Path, *, more: str = "", **changes: str) -> None:
        self.directory, self.running = directory, server("mysql")
        self.database = f"pipeline{next(_numbers)}"
        self.url = self.running.database(self.database).partition("?")[0]
        text = PIPELINE
        for old, new in changes.items():
            text = text.replace(f"{old}:", f"{new}\n    {old}:")
        (directory / "mysql.yaml").write_text(text + more)

    def run(self, command: str, *, url: str | None = None, faults: str = "") -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=self.directory,
            env={**os.environ, "WAREHOUSE_URL": url or self.url, "PENSTOCK_FAULTS": faults},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not [secret for secret in NOTHING_SECRET if secret in done.stdout + done.stderr]
        return done

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with self.running.admin(self.database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def rows(self) -> "Counter[tuple[object, ...]]":
        there = self.sql("SHOW TABLES LIKE 'flights'")
        return Counter(self.sql("SELECT id, origin, month, delay FROM flights") if there else [])


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = Place(tmp_path)
    sent = feed(tmp_path / "incoming")
    explained = place.run("penstock explain mysql.yaml")
    assert explained.returncode == 0
    assert "LOAD DATA LOCAL" in explained.stdout
    assert place.run("penstock run mysql.yaml", faults="mysql.commit=kill").returncode != 0
    assert place.rows() == Counter()
    for command in COMMANDS:
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert place.rows() == sent
    assert lake(tmp_path / "lake") == sent
    assert_answered(place, QUERIES)
    again = place.run("penstock run mysql.yaml --json")
    assert json.loads(again.stdout.splitlines()[-1])["sinks"]["warehouse"]["rows"] == 0
    assert place.rows() == sent
    place.sql("UPDATE flights SET delay = 1000 WHERE id = 1")
    verified = place.run("penstock verify mysql.yaml --json")
    assert verified.returncode == 5
    assert not json.loads(verified.stdout)["sinks"]["warehouse"]["ok"]


def assert_answered(place: Place, queries: str) -> None:
    for query in filter(str.strip, queries.split(";\n")):
        [(_, *found), *_] = place.sql(query)
        assert found


def test_with_the_ledger_in_the_same_database_decision_and_rows_are_one_transaction(tmp_path: Path) -> None:
    place = Place(tmp_path, more=LEDGER)
    sent = feed(tmp_path / "incoming")
    assert place.run("penstock run mysql.yaml", faults="ledger.mysql_commit=kill@2").returncode != 0
    assert place.rows() == Counter()
    assert place.sql("SELECT kind FROM penstock_history") == [("opened",)]
    assert place.run("penstock run mysql.yaml", faults="ledger.mysql_commit=lost@2").returncode == 0
    assert place.run("penstock verify mysql.yaml").returncode == 0
    assert place.rows() == sent
    assert_answered(place, QUERIES + QUERIES_OF_LEDGER)
    explained = place.run("penstock explain mysql.yaml")
    assert "one append per batch: mysql://penstock:***@" in " ".join(explained.stdout.split()), explained.stdout
    for command in ("penstock history mysql.yaml --json", "penstock status mysql.yaml --json"):
        assert place.run(command).returncode == 0
    assert not (tmp_path / "state" / "mysql" / "ledger.db").exists()


def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path) -> None:
    place = Place(tmp_path, table="create: false")
    feed(tmp_path / "incoming")
    wrong = place.running.url(place.database, password="geheimes-wort")
    assert_told(place.run("penstock check mysql.yaml", url=wrong), 1, "does not let us in", "Access denied for user 'penstock'")
    place.sql("CREATE TABLE flights (id int, origin text CHARACTER SET utf8mb4, month int, delay double) ENGINE = MyISAM")
    assert_told(place.run("penstock run mysql.yaml"), 3, "is of the engine MyISAM, expected InnoDB")
    assert place.rows() == Counter()
