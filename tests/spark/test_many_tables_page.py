"""The page about many tables, command by command; killed between two tables, rewound, and by a query that keeps state."""

import json
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.page import Page, SqlitePlace, killed_at
from tests.spark.test_readme import feed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PAGE = Page("many_tables")
[QUERIES] = PAGE.blocks("sql")
ORIGINS = ("EWR", "JFK", "LGA")


class ManyPlace(SqlitePlace):
    page, sink = PAGE, "shop"

    def damage(self) -> None:
        self.query("UPDATE JFK_flights SET delay = 1000 WHERE id IN (SELECT id FROM JFK_flights LIMIT 1)")

    def assert_all_there(self, sent: "Counter[tuple[object, ...]]") -> None:
        for origin in ORIGINS:
            own = Counter(row for row in sent.elements() if row[1] == origin)
            assert Counter(self.query(f"SELECT id, origin, month, delay FROM {origin}_flights")) == own
            table = DeltaTable(str(self.directory / "lake" / origin)).to_pyarrow_table()
            assert Counter((row["id"], origin, row["month"], row["delay"]) for row in table.to_pylist()) == own


def test_the_page_works_and_killed_runs_are_finished_by_the_next(tmp_path: Path) -> None:
    place, sent = ManyPlace(tmp_path), feed(tmp_path / "incoming")
    assert place.run("penstock run many_tables.yaml", faults="tables.open=kill@2").returncode != 0
    assert set(killed_at(tmp_path, "penstock run many_tables.yaml", ["laketables.next", "sqlite.commit"])) == {-9}
    place.assert_done("many_tables.yaml")
    place.assert_all_there(sent)
    place.assert_answered(QUERIES)
    explained = " ".join(place.run("penstock explain many_tables.yaml").stdout.split())
    assert "one for each {origin}_flights that rows have, 20 at most" in explained
    status = json.loads(place.run("penstock status many_tables.yaml --json").stdout)
    assert {f"{origin}_flights" for origin in ORIGINS} <= {each["account"] for each in status["places"]}
    place.assert_damage_is_noticed()
