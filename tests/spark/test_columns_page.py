"""The page about rows that gain columns and wider types, command by command, with the newest batch of before outstanding."""

from collections import Counter
from pathlib import Path

import pytest

from tests.spark.page import Page, SqlitePlace, assert_told
from tests.spark.test_readme import feed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PAGE = Page("columns")
BEFORE, AFTER, WIDE = PAGE.blocks("yaml")
[QUERIES] = PAGE.blocks("sql")


class ColumnsPlace(SqlitePlace):
    page, sink = PAGE, "warehouse"


def test_the_page_works_with_a_batch_outstanding(tmp_path: Path) -> None:
    place, sent = ColumnsPlace(tmp_path), feed(tmp_path / "incoming")
    before, *after = PAGE.commands
    after, wide = after[:-2], after[-2:]
    assert place.run(before, faults="sqlite.commit=kill").returncode != 0
    place.file.write_text(AFTER.replace(", schema_changes: add", ""))
    assert_told(place.run("penstock run columns.yaml"), 3, "missing in the table: late", 'ALTER TABLE "flights" ADD "late"')
    place.file.write_text(AFTER)
    (tmp_path / "incoming" / "late.csv").write_text("id,origin,month,delay\n9001,EWR,1,75\n9002,EWR,1,5\n")
    sent.update([(9001, "EWR", 1, 75.0), (9002, "EWR", 1, 5.0)])
    run_all(place, after)
    assert place.rows() == sent
    place.assert_answered(QUERIES)
    assert Counter(place.query("SELECT late FROM flights")) == {(None,): sent.total() - 2, (1,): 1, (0,): 1}
    place.file.write_text(WIDE.replace("schema_changes: widen", "schema_changes: add"))
    assert_told(place.run("penstock run columns.yaml"), 3, "Column 'id' was int32", "schema_changes: widen")
    place.file.write_text(WIDE)
    (tmp_path / "incoming" / "wide.csv").write_text(f"id,origin,month,delay\n{1 << 40},EWR,1,5\n")
    sent.update([(1 << 40, "EWR", 1, 5.0)])
    run_all(place, wide)
    assert place.rows() == sent
    place.assert_damage_is_noticed()


def run_all(place: ColumnsPlace, commands: list[str]) -> None:
    for command in commands:
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
