"""The page about Cassandra, command by command: killed in the middle, finished by the next run, waited for while it is down."""

import json
import os
import threading
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from tests.crash.forked import Forked
from tests.servers.fixtures import server
from tests.spark.page import Page, Place, Rows, assert_told, write_changes
from tests.spark.test_readme import feed, lake

pytestmark = pytest.mark.usefixtures("spark")

PAGE = Page("cassandra")
[QUERIES] = PAGE.blocks("sql")
_numbers = count()


class CassandraPlace(Place):
    """With a keyspace of its own."""

    page, sink = PAGE, "serving"

    def __init__(self, directory: Path, **changes: str) -> None:
        self.running, self.keyspace = server("cassandra"), f"pipeline{next(_numbers)}"
        super().__init__(directory, environment={"SERVING_URL": self.running.database(self.keyspace)}, **changes)

    def query(self, statement: str) -> Rows:
        with self.running.admin(self.keyspace) as session:
            return [tuple(row) for row in session.execute(statement)]

    def damage(self) -> None:
        [(origin, month, number), *_] = self.query("SELECT origin, month, id FROM flights LIMIT 1")
        self.query(f"UPDATE flights SET delay = 1000 WHERE origin = '{origin}' AND month = {month} AND id = {number}")


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = CassandraPlace(tmp_path)
    sent = feed(tmp_path / "incoming")
    explained = place.run("penstock explain cassandra.yaml")
    assert explained.returncode == 0
    assert "a reader may see a part of a batch" in explained.stdout
    assert place.run("penstock run cassandra.yaml", faults="cassandra.mark=kill").returncode != 0
    place.assert_delivered_by_the_page(sent, queries=QUERIES)
    place.assert_damage_is_noticed()


def test_rows_that_delete(tmp_path: Path) -> None:
    place = CassandraPlace(tmp_path)
    write_changes(tmp_path, PAGE.blocks("yaml")[1])
    place.assert_done("changes.yaml")
    assert sorted(place.query("SELECT id, gate, at FROM gates")) == [(1, "A9", 15), (3, "C4", 35)]


def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path) -> None:
    place = CassandraPlace(tmp_path, table="create: false")
    feed(tmp_path / "incoming")
    wrong = place.running.url(place.keyspace, password="geheimes-wort")
    assert_told(place.run("penstock check cassandra.yaml", SERVING_URL=wrong), 1, "The login at", "Correct user and password")
    place.query("CREATE TABLE flights (origin text, month int, id int, delay double, PRIMARY KEY (origin, month, id))")
    assert_told(place.run("penstock run cassandra.yaml"), 3, "has the primary key ((origin), month, id)")
    assert place.rows() == Counter()


def test_a_cluster_that_is_down_is_told_and_the_next_run_delivers_without_doubling_the_other_sinks(tmp_path: Path) -> None:
    """One pass into directories, PostgreSQL, MariaDB and Cassandra, which goes away before the rows and comes back."""
    place = CassandraPlace(tmp_path, table="wait: 1s")
    others = {kind: server(kind).database(f"beside_cassandra{next(_numbers)}") for kind in ("postgres", "mysql")}
    text = (tmp_path / "cassandra.yaml").read_text()
    beside = "".join(f"  {kind}: {{type: {kind}, url: '{url}', table: flights}}\n" for kind, url in others.items())
    (tmp_path / "cassandra.yaml").write_text(text.replace("sinks:\n", f"sinks:\n{beside}"))
    first = feed(tmp_path / "incoming")
    faults, once = "cassandra.stamp=stall:600", tmp_path / "once"
    once.mkdir()
    environment = {**os.environ, **place.environment, "PENSTOCK_FAULTS": faults, "PENSTOCK_FAULTS_ONCE": str(once)}
    process = Forked(["-m", "penstock", "run", "cassandra.yaml"], cwd=tmp_path, env=environment)
    waiting = threading.Event()
    while not (once / "cassandra.stamp=stall").exists():
        assert process.poll() is None, process.communicate()
        waiting.wait(0.05)
    place.running.kill()
    try:
        (once / "cassandra.stamp=stall.over").touch()
        _, said = process.communicate(timeout=180)
    finally:
        place.running.start()
    assert process.returncode == 75, said
    assert "publishing was tried for 1 s." in said
    assert place.rows() == Counter()
    done = place.run("penstock run cassandra.yaml --json")
    assert done.returncode == 0, done.stderr
    assert place.rows() == first == lake(tmp_path / "lake")
    verified = json.loads(place.run("penstock verify cassandra.yaml --json").stdout)
    assert {name: (sink["ok"], sink["rows_found"]) for name, sink in verified["sinks"].items()} == dict.fromkeys(
        ("postgres", "mysql", "lake", "serving"), (True, sum(first.values()))
    )
    recovered = json.loads(done.stdout.splitlines()[-1])
    assert recovered["recovered"]
