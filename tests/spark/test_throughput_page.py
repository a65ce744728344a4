"""The page about publishing beside the next batch, command by command: killed in the middle, finished by the next run."""

from pathlib import Path

import pytest

from tests.spark.page import Page, SqlitePlace
from tests.spark.test_readme import feed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PAGE = Page("throughput")
[QUERIES] = PAGE.blocks("sql")


class ThroughputPlace(SqlitePlace):
    page, sink = PAGE, "warehouse"


def test_the_page_works_and_a_killed_run_is_finished_by_the_next(tmp_path: Path) -> None:
    place = ThroughputPlace(tmp_path)
    sent = feed(tmp_path / "incoming")
    assert place.run("penstock run throughput.yaml", faults="sqlite.commit=kill@2").returncode != 0
    assert "beside the next batch" in place.run("penstock explain throughput.yaml").stdout
    place.assert_delivered_by_the_page(sent, queries=QUERIES)
    place.assert_damage_is_noticed()
