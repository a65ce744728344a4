"""The page about rows that gain columns, command by command, with the newest batch of before outstanding."""

from collections import Counter
from pathlib import Path

import pytest

from tests.spark.page import Page, SqlitePlace, assert_told
from tests.spark.test_readme import feed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PAGE = Page("columns")
BEFORE, AFTER = PAGE.blocks("yaml")
[QUERIES] = PAGE.blocks("sql")


class ColumnsPlace(SqlitePlace):
    page, sink = PAGE, "warehouse"


def test_the_page_works_with_a_batch_outstanding(tmp_path: Path) -> None:
    place, sent = ColumnsPlace(tmp_path), feed(tmp_path / "incoming")
    before, *after = PAGE.commands
    assert place.run(before, faults="sqlite.commit=kill").returncode != 0
    place.file.write_text(AFTER.replace(", schema_changes: add", ""))
    assert_told(place.run("penstock run columns.yaml"), 3, "missing in the table: late", 'ALTER TABLE "flights" ADD "late"')
    place.file.write_text(AFTER)
    (tmp_path / "incoming" / "late.csv").write_text("id,origin,month,delay\n9001,EWR,1,75\n9002,EWR,1,5\n")
    sent.update([(9001, "EWR", 1, 75.0), (9002, "EWR", 1, 5.0)])
    for command in after:
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert place.rows() == sent
    place.assert_answered(QUERIES)
    assert Counter(place.query("SELECT late FROM flights")) == {(None,): sent.total() - 2, (1,): 1, (0,): 1}
    place.assert_damage_is_noticed()
