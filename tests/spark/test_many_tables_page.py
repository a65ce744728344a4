"""The page about many tables, command by command; killed between two tables, rewound, and by a query that keeps state."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.page import Page, SqlitePlace, killed_at, run_beside
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


STATEFUL = """\
pipeline: orders-many
home: ./state/many
sources:
  orders: {format: csv, path: ./incoming, schema: "id INT, region STRING", options: {maxFilesPerTrigger: 1}}
transform: {python: "many_once:once"}
quarantine: ./bad
sinks:
  shop:
    type: sqlite
    url: sqlite:///warehouse.db
    table: "{region}_orders"
    tables: {pattern: "[a-z]+_orders"}
    unrouted: quarantine
trigger: {available_now: true}
"""


def test_a_query_with_state_and_rows_of_no_table(tmp_path: Path) -> None:
    """Each batch names a new table, so that it is staged twice; its state is computed once."""
    (tmp_path / "incoming").mkdir()
    for number, text in enumerate(("1,eu\n2,EU\n1,eu\n3,\n", "1,eu\n4,us\n3,\n", "4,us\n5,ap\n2,EU\n")):
        (tmp_path / "incoming" / f"{number}.csv").write_text(text)
    (tmp_path / "orders.yaml").write_text(STATEFUL)
    (tmp_path / "many_once.py").write_text(
        "def once(spark, sources):\n    return sources['orders'].dropDuplicates(['id', 'region'])\n"
    )
    ran = run_beside(tmp_path, "penstock run orders.yaml --json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with closing(sqlite3.connect(tmp_path / "warehouse.db")) as connection:
        found = {table: connection.execute(f"SELECT id FROM {table}_orders").fetchall() for table in ("eu", "us", "ap")}
    assert found == {"eu": [(1,)], "us": [(4,)], "ap": [(5,)]}
    listed = json.loads(run_beside(tmp_path, "penstock quarantine list orders.yaml --json").stdout)
    assert sorted(json.loads(one["row"])["id"] for one in listed) == [2, 3]
    assert run_beside(tmp_path, "penstock verify orders.yaml").returncode == 0
