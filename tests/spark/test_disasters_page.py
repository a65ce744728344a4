"""The page about disasters, followed as it stands: after each, every order is in every place once."""

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.console import Done, Shown, shown_in
from tests.crash.commandline import penstock
from tests.spark.page import Page
from tests.spark.test_tutorial_page import Follower

PAGE = Page("disasters")
PLACES = {
    "The checkpoint is lost": ("warehouse.db", "lake/north", "lake/south"),
    "The ledger is lost": ("warehouse.db", "lake/north", "lake/south"),
    "Checkpoint and ledger are lost": ("again/warehouse.db", "again/north", "again/south"),
    "An account is lost": ("again/warehouse.db", "again/north2", "again/south2"),
}

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark"), pytest.mark.timeout(300)]


class Operator(Follower):
    """Who follows it in the test's process; a refusal is the one that the page names."""

    def run(self, shown: Shown) -> Done:
        if shown.words[0] != "penstock":
            return super().run(shown)
        ended = penstock(*shown.words[1:], directory=self.directory)
        told = re.search(r"# ends with exit code (\d)(?:: (\w+))?", shown.command)
        assert ended.code == (int(told[1]) if told else 0), f"{shown.command}: {ended}"
        if told and told[2]:
            again = penstock(*shown.words[1:], "--json", directory=self.directory)
            assert again.last["error"]["kind"] == told[2], str(again)
        return Done(shown.words, 0, ended.out, ended.err)


def orders(directory: Path, warehouse: str, *accounts: str) -> tuple["Counter[int]", "Counter[int]"]:
    """The ids in the lake and in the warehouse."""
    lake = ds.dataset([ds.dataset(directory / account, format="parquet") for account in accounts]).to_table()["id"].to_pylist()
    with closing(sqlite3.connect(directory / warehouse)) as connection:
        return Counter(lake), Counter(number for (number,) in connection.execute("SELECT id FROM orders"))


def test_after_each_disaster_the_pipeline_goes_on_exactly(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    shop, again, sink = PAGE.blocks("yaml")
    (tmp_path / "shop.yaml").write_text(shop)
    (tmp_path / "again.yaml").write_text(again)
    every = Counter(range(1, 5))
    for section in PAGE.text.split("\n## "):
        for shown in shown_in(section):
            if "backfill" in shown.words:
                [old] = [line for line in again.splitlines() if line.startswith("  lake:")]
                (tmp_path / "again.yaml").write_text(again.replace(old, sink.strip("\n")))
            shown.assert_printed_by(operator.run)
        heading = section.partition("\n")[0]
        assert heading not in PLACES or orders(tmp_path, *PLACES[heading]) == (every, every), heading
    assert {section.partition("\n")[0] for section in PAGE.text.split("\n## ")} > PLACES.keys()
