"""The page about tables with history, command by command; a killed run is finished by the next."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.page import Page, SqlitePlace

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PAGE = Page("history")
[QUERIES] = PAGE.blocks("sql")


class HistoryPlace(SqlitePlace):
    page, sink = PAGE, "versions"

    def damage(self) -> None:
        self.query("UPDATE versions SET valid_to = valid_to + 1 WHERE id = 1 AND valid_to IS NOT NULL")


def write(directory: Path, name: str, *rows: str) -> None:
    (directory / "changes").mkdir(exist_ok=True)
    (directory / "changes" / name).write_text("\n".join(rows) + "\n")


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = HistoryPlace(tmp_path)
    write(tmp_path, "1.csv", "i,1,A1,10", "i,2,closed,10", "i,3,C3,12")
    assert place.run("penstock run history.yaml").returncode == 0
    write(tmp_path, "2.csv", "u,1,A9,20", "u,2,B9,20", "d,3,,30", "u,1,A9,20")
    assert place.run("penstock run history.yaml", faults="compare.read=kill").returncode != 0
    write(tmp_path, "3.csv", "u,1,A5,15", "i,4,D4,1")
    place.assert_done("history.yaml")
    versions = "SELECT id, gate, valid_from, valid_to, is_current FROM versions ORDER BY id, valid_from"
    assert place.query(versions) == [
        (1, "A1", 10, 15, 0),
        (1, "A5", 15, 20, 0),
        (1, "A9", 20, None, 1),
        (2, "closed", 10, 20, 0),
        (2, "B9", 20, None, 1),
        (3, "C3", 12, 30, 0),
        (4, "D4", 1, None, 1),
    ]
    assert place.query("SELECT * FROM current ORDER BY id") == [(1, "A9", 20), (2, "closed", 10), (3, "C3", 12), (4, "D4", 1)]
    rows = DeltaTable(str(tmp_path / "tables" / "versions")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["gate"], row["is_current"]) for row in rows if row["id"] == 1) == [
        (1, "A1", False),
        (1, "A5", True),
        (1, "A9", False),
    ]
    place.assert_answered(QUERIES)
    explained = " ".join(place.run("penstock explain history.yaml").stdout.split())
    assert "each version by id, in the order of at" in explained
    assert "upsert by id, if new.at > old.at" in explained
    place.assert_damage_is_noticed()
