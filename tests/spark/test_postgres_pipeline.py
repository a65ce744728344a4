"""The command line from CSV files into directories and PostgreSQL: stopped, restarted, refused, looked at."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.architecture.reading import ROOT
from tests.servers.fixtures import server
from tests.spark.test_readme import feed, lake

PAGE = (ROOT / "docs" / "howto" / "postgres.md").read_text()
(PIPELINE, LEDGER, _), (QUERIES, QUERIES_OF_LEDGER, _) = (
    re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for kind in ("yaml", "sql")
)
COMMANDS = [line.split("#")[0] for line in re.findall(r"^penstock .*$", PAGE, re.MULTILINE)]
NOTHING_SECRET = ("s3cret", "of%3Fthe", "of?the")
_numbers = itertools.count()


class Place:
    """A directory with the page's pipeline in it, and a database of its own."""

    def __init__(self, directory: Path, *, more: str = "", **changes: str) -> None:
        self.directory, self.running = directory, server("postgres")
        self.database = f"pipeline{next(_numbers)}"
        self.url = self.running.database(self.database)
        text = PIPELINE
        for old, new in changes.items():
            text = text.replace(f"{old}:", f"{new}\n    {old}:")
        (directory / "postgres.yaml").write_text(text + more)

    def run(self, command: str, *, url: str | None = None, faults: str = "") -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "WAREHOUSE_URL": url or self.url, "PENSTOCK_FAULTS": faults}
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not [secret for secret in NOTHING_SECRET if secret in done.stdout + done.stderr]
        return done

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def rows(self) -> "Counter[tuple[object, ...]]":
        return Counter(self.sql("SELECT id, origin, month, delay FROM flights"))


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = Place(tmp_path)
    sent = feed(tmp_path / "incoming")
    assert place.run("penstock explain postgres.yaml").returncode == 0
    killed = place.run("penstock run postgres.yaml", faults="postgres.commit=kill")
    assert killed.returncode != 0
    assert place.rows() == Counter()
    for command in COMMANDS:
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert place.rows() == sent
    assert lake(tmp_path / "lake") == sent
    assert_answered(place, QUERIES)
    again = place.run("penstock run postgres.yaml --json")
    assert json.loads(again.stdout.splitlines()[-1])["sinks"]["warehouse"]["rows"] == 0
    assert place.rows() == sent
    status = place.run("penstock status postgres.yaml --json")
    assert status.returncode == 0, status.stdout
    _is_noticed(place)


def assert_answered(place: Place, queries: str) -> None:
    for query in filter(str.strip, queries.split(";\n")):
        [(_, *found), *_] = place.sql(query)
        assert found


def test_with_the_ledger_in_the_same_database_decision_and_rows_are_one_transaction(tmp_path: Path) -> None:
    place = Place(tmp_path, more=LEDGER)
    sent = feed(tmp_path / "incoming")
    assert place.run("penstock run postgres.yaml", faults="ledger.postgres_commit=kill@2").returncode != 0
    assert place.rows() == Counter()
    assert place.sql("SELECT kind FROM penstock_history") == [("opened",)]
    for command in ("penstock run postgres.yaml", "penstock verify postgres.yaml"):
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert place.rows() == sent
    assert_answered(place, QUERIES + QUERIES_OF_LEDGER)
    together = "SELECT ledger.xmin = batch.xmin FROM penstock_batch AS batch JOIN penstock_ledger AS ledger USING (position)"
    found = place.sql(together)
    assert found == [(True,)] * len(found)
    assert found
    explained = place.run("penstock explain postgres.yaml")
    assert "one append per batch: postgresql://penstock:***@" in " ".join(explained.stdout.split()), explained.stdout
    assert not (tmp_path / "state" / "postgres" / "ledger.db").exists()


def _is_noticed(place: Place) -> None:
    place.sql("UPDATE flights SET delay = 1000 WHERE id = 1")
    verified = place.run("penstock verify postgres.yaml --json")
    assert verified.returncode == 5
    assert not json.loads(verified.stdout)["sinks"]["warehouse"]["ok"]
    place.sql("DELETE FROM penstock_marker")
    refused = place.run("penstock run postgres.yaml")
    assert refused.returncode == 3
    assert "is gone from penstock_marker" in refused.stdout + refused.stderr


def assert_told(done: "subprocess.CompletedProcess[str]", code: int, *said: str) -> None:
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    assert "Traceback" not in text
    assert [part for part in said if part not in " ".join(text.split())] == []


@pytest.mark.parametrize("command", ["check", "run"])
def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path, command: str) -> None:
    place = Place(tmp_path, table="create: false")
    feed(tmp_path / "incoming")
    act, failed = f"penstock {command} postgres.yaml", 1
    wrong = place.running.url(place.database, password="geheimes-wort")
    assert_told(place.run(act, url=wrong), failed, "does not let us in", 'password authentication failed for user "penstock"')
    assert_told(place.run(act, url=place.running.url("nobody")), failed, 'database "nobody" does not exist')
    gone = place.run(act, url=place.running.url(place.database, port=1))
    assert_told(gone, 1 if command == "check" else 75, "does not answer", "Connection refused")
    missing = place.run(act)
    assert missing.returncode in {1, 3}
    assert "public.flights" in missing.stdout + missing.stderr
    place.sql("CREATE TABLE flights (id int, origin text, month int, delay numeric)")
    if command == "run":
        assert_told(place.run(act), 3, "Column 'delay' of table 'public.flights' is numeric", "expected double precision")
    assert place.rows() == Counter()
