"""The page about any driver, command by command: killed in the middle, finished by the next run, read by another client."""

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from penstock.sink.dbapi import statements
from tests.spark.page import Page, Place, Rows
from tests.spark.test_readme import feed

pytestmark = pytest.mark.usefixtures("spark")

PAGE = Page("dbapi")


class SqlitePlace(Place):
    page, sink = PAGE, "shop"

    def __init__(self, directory: Path) -> None:
        self.database = directory / "shop.db"
        super().__init__(directory, environment={"SHOP": str(self.database)})

    def query(self, statement: str) -> Rows:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            return connection.execute(statement).fetchall()


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    sent = feed(tmp_path / "incoming")
    assert place.run("penstock run dbapi.yaml", faults="dbapi.commit=kill").returncode != 0
    assert place.rows() == Counter()
    place.assert_delivered_by_the_page(sent, queries=";\n".join(re.findall(r"`(SELECT [^`]*)`", PAGE.text)))
    place.assert_damage_is_noticed()


def test_the_page_shows_the_tables_as_they_are_made() -> None:
    [shown] = PAGE.blocks("sql")
    assert shown.split(";\n")[:2] == [statements.CREATE_MARKER_TABLE, statements.CREATE_BATCH_TABLE]
