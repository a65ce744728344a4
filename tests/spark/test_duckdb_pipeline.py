"""The page about DuckDB, command by command: killed in the middle, finished by the next run, read by DuckDB itself."""

from collections import Counter
from pathlib import Path

import duckdb
import pytest

from tests.spark.page import Page, Place, Rows
from tests.spark.test_readme import feed

pytestmark = pytest.mark.usefixtures("spark")

PAGE = Page("duckdb")
[QUERIES] = PAGE.blocks("sql")


class DuckdbPlace(Place):
    page, sink = PAGE, "analytics"

    def query(self, statement: str) -> Rows:
        with duckdb.connect(self.directory / "analytics.duckdb") as connection:
            return connection.execute(statement).fetchall()


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = DuckdbPlace(tmp_path)
    sent = feed(tmp_path / "incoming")
    assert place.run("penstock run duckdb.yaml", faults="duckdb.commit=kill").returncode != 0
    assert place.rows() == Counter()
    place.assert_delivered_by_the_page(sent, queries=QUERIES)
    place.assert_damage_is_noticed()
