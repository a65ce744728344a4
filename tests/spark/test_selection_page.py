"""The page about other rows for each sink, command by command; a killed run is finished by the next."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from ruamel.yaml import YAML

from tests.spark.page import Page, SqlitePlace, write_changes
from tests.spark.test_readme import feed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PAGE = Page("selection")
[QUERIES] = PAGE.blocks("sql")


class SelectionPlace(SqlitePlace):
    page, sink = PAGE, "late"

    def damage(self) -> None:
        self.query("UPDATE late SET hours = 1000 WHERE id IN (SELECT id FROM late LIMIT 1)")


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place, sent = SelectionPlace(tmp_path), feed(tmp_path / "incoming")
    assert place.run("penstock run selection.yaml", faults="sqlite.commit=kill").returncode != 0
    explained = " ".join(place.run("penstock explain selection.yaml").stdout.split())
    assert "rows where delay > 0; columns id, origin, delay / 60 AS hours" in explained
    place.assert_done("selection.yaml")
    late = Counter((row[0], row[1], row[3] / 60) for row in sent.elements() if row[3] is not None and row[3] > 0)
    assert Counter(place.query("SELECT id, origin, hours FROM late")) == late
    assert late
    for origin in ("EWR", "JFK", "LGA"):
        table = ds.dataset(tmp_path / "lake" / origin.lower(), format="parquet").to_table()
        assert table.column_names == ["id", "month", "delay"]
        rows = Counter((row["id"], row["month"], row["delay"]) for row in table.to_pylist())
        assert rows == Counter((row[0], row[2], row[3]) for row in sent.elements() if row[1] == origin)
    place.assert_answered(QUERIES)
    place.assert_damage_is_noticed()


def test_rows_that_delete_and_changes_that_come_late(tmp_path: Path) -> None:
    place = SelectionPlace(tmp_path)
    deleting, late = map(YAML(typ="safe").load, PAGE.blocks("yaml")[1:])
    both = {**deleting, "sinks": {**deleting["sinks"], **late["sinks"]}}
    write_changes(tmp_path, json.dumps(both))  # YAML can be written so
    explained = " ".join(place.run("penstock explain changes.yaml").stdout.split())
    assert "all columns but op; deletes where op = 'd'" in explained
    assert "upsert by id, the newest by at" in explained
    place.assert_done("changes.yaml")
    assert sorted(place.query("SELECT id, gate, at FROM gates")) == [(1, "A9", 15), (3, "C4", 35)]
    assert sorted(place.query("SELECT id, gate, at FROM latest")) == [(1, "A9", 15), (2, "B2", 20), (3, "C4", 35)]
