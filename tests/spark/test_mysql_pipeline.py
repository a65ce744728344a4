"""The command line from CSV files into directories and MariaDB: stopped, restarted, refused, looked at."""

from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from tests.servers.fixtures import server
from tests.spark.page import Page, Place, Rows, assert_told
from tests.spark.test_readme import feed

pytestmark = pytest.mark.usefixtures("spark")

PAGE = Page("mysql")
_, LEDGER, _ = PAGE.blocks("yaml")
QUERIES, QUERIES_OF_LEDGER, _ = PAGE.blocks("sql")
_numbers = count()


class MysqlPlace(Place):
    """With a database of its own."""

    page, sink = PAGE, "warehouse"

    def __init__(self, directory: Path, *, more: str = "", **changes: str) -> None:
        self.running, self.database = server("mysql"), f"pipeline{next(_numbers)}"
        url = self.running.database(self.database).partition("?")[0]
        super().__init__(directory, environment={"WAREHOUSE_URL": url}, more=more, **changes)

    def query(self, statement: str) -> Rows:
        with self.running.admin(self.database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def rows(self) -> "Counter[tuple[object, ...]]":
        return super().rows() if self.query("SHOW TABLES LIKE 'flights'") else Counter()


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = MysqlPlace(tmp_path)
    sent = feed(tmp_path / "incoming")
    explained = place.run("penstock explain mysql.yaml")
    assert explained.returncode == 0
    assert "LOAD DATA LOCAL" in explained.stdout
    assert place.run("penstock run mysql.yaml", faults="mysql.commit=kill").returncode != 0
    assert place.rows() == Counter()
    place.assert_delivered_by_the_page(sent, queries=QUERIES)
    place.assert_damage_is_noticed()


def test_with_the_ledger_in_the_same_database_decision_and_rows_are_one_transaction(tmp_path: Path) -> None:
    place = MysqlPlace(tmp_path, more=LEDGER)
    sent = feed(tmp_path / "incoming")
    assert place.run("penstock run mysql.yaml", faults="ledger.mysql_commit=kill@2", forked=True).returncode != 0
    assert place.rows() == Counter()
    assert place.query("SELECT kind FROM penstock_history") == [("opened",)]
    assert place.run("penstock run mysql.yaml", faults="ledger.mysql_commit=lost@2", forked=True).returncode == 0
    assert place.run("penstock verify mysql.yaml").returncode == 0
    assert place.rows() == sent
    place.assert_answered(QUERIES + QUERIES_OF_LEDGER)
    explained = place.run("penstock explain mysql.yaml")
    assert "one append per batch: mysql://penstock:***@" in " ".join(explained.stdout.split()), explained.stdout
    for command in ("penstock history mysql.yaml --json", "penstock status mysql.yaml --json"):
        assert place.run(command).returncode == 0
    assert not (tmp_path / "state" / "mysql" / "ledger.db").exists()


def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path) -> None:
    place = MysqlPlace(tmp_path, table="create: false")
    feed(tmp_path / "incoming")
    wrong = place.run("penstock check mysql.yaml", WAREHOUSE_URL=place.running.url(place.database, password="geheimes-wort"))
    assert_told(wrong, 1, "The login at", "Access denied for user 'penstock'")
    place.query("CREATE TABLE flights (id int, origin text CHARACTER SET utf8mb4, month int, delay double) ENGINE = MyISAM")
    assert_told(place.run("penstock run mysql.yaml"), 3, "is of the engine MyISAM, expected InnoDB")
    assert place.rows() == Counter()
