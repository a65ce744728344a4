"""The page about sources with names, followed as it stands."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.console import shown_in
from tests.spark.page import Page
from tests.spark.test_disasters_page import Operator

PAGE = Page("named_sources")

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark"), pytest.mark.timeout(300)]


def test_a_checkpoint_gets_names_and_a_source_more(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    first, more = PAGE.blocks("yaml")
    for section in PAGE.text.split("\n## "):
        (tmp_path / "shop.yaml").write_text(more if section.startswith("Add a source") else first)
        for shown in shown_in(section):
            shown.assert_printed_by(operator.run)
    with closing(sqlite3.connect(tmp_path / "orders.db")) as connection:
        rows = sorted(connection.execute("SELECT id, shop FROM orders"))
    assert rows == [(1, "web"), (2, "web"), (3, "store"), (4, "app"), (5, "web")]
