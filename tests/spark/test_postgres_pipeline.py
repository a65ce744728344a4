"""The command line from CSV files into directories and PostgreSQL: stopped, restarted, refused, looked at."""

import itertools
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.servers.fixtures import server
from tests.spark.page import Page, Place, Rows, assert_told
from tests.spark.test_readme import feed

pytestmark = pytest.mark.usefixtures("spark")

PAGE = Page("postgres")
_, LEDGER, _ = PAGE.blocks("yaml")
QUERIES, QUERIES_OF_LEDGER, _ = PAGE.blocks("sql")
_numbers = itertools.count()


class PostgresPlace(Place):
    """With a database of its own."""

    page, sink = PAGE, "warehouse"

    def __init__(self, directory: Path, *, more: str = "", **changes: str) -> None:
        self.running, self.database = server("postgres"), f"pipeline{next(_numbers)}"
        self.url = self.running.database(self.database)
        super().__init__(directory, environment={"WAREHOUSE_URL": self.url}, more=more, **changes)

    def query(self, statement: str) -> Rows:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    sent = feed(tmp_path / "incoming")
    assert place.run("penstock explain postgres.yaml").returncode == 0
    assert place.run("penstock run postgres.yaml", faults="postgres.commit=kill").returncode != 0
    assert place.rows() == Counter()
    place.assert_delivered_by_the_page(sent, queries=QUERIES)
    status = place.run("penstock status postgres.yaml --json")
    assert status.returncode == 0, status.stdout
    place.assert_damage_is_noticed()
    place.query("DELETE FROM penstock_marker")
    assert_told(place.run("penstock run postgres.yaml"), 3, "is gone from penstock_marker")


def test_with_the_ledger_in_the_same_database_decision_and_rows_are_one_transaction(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path, more=LEDGER)
    sent = feed(tmp_path / "incoming")
    assert place.run("penstock run postgres.yaml", faults="ledger.postgres_commit=kill@2", forked=True).returncode != 0
    assert place.rows() == Counter()
    assert place.query("SELECT kind FROM penstock_history") == [("opened",)]
    for command in ("penstock run postgres.yaml", "penstock verify postgres.yaml"):
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert place.rows() == sent
    place.assert_answered(QUERIES + QUERIES_OF_LEDGER)
    together = "SELECT ledger.xmin = batch.xmin FROM penstock_batch AS batch JOIN penstock_ledger AS ledger USING (position)"
    found = place.query(together)
    assert found == [(True,)] * len(found)
    assert found
    explained = place.run("penstock explain postgres.yaml")
    assert "one append per batch: postgresql://penstock:***@" in " ".join(explained.stdout.split()), explained.stdout
    assert not (tmp_path / "state" / "postgres" / "ledger.db").exists()


@pytest.mark.parametrize("command", ["check", "run"])
def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path, command: str) -> None:
    place = PostgresPlace(tmp_path, table="create: false")
    feed(tmp_path / "incoming")
    act, failed = f"penstock {command} postgres.yaml", 1
    wrong = place.running.url(place.database, password="geheimes-wort")
    assert_told(place.run(act, WAREHOUSE_URL=wrong), failed, "The login at", 'password authentication failed for user "penstock"')
    assert_told(place.run(act, WAREHOUSE_URL=place.running.url("nobody")), failed, 'database "nobody" does not exist')
    gone = place.run(act, WAREHOUSE_URL=place.running.url(place.database, port=1))
    assert_told(gone, 1 if command == "check" else 75, "does not answer", "Connection refused")
    missing = place.run(act)
    assert missing.returncode in {1, 3}
    assert "public.flights" in missing.stdout + missing.stderr
    place.query("CREATE TABLE flights (id int, origin text, month int, delay numeric)")
    if command == "run":
        assert_told(place.run(act), 3, "Column 'delay' of table 'public.flights' is numeric", "expected double precision")
    assert place.rows() == Counter()
