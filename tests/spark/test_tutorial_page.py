"""The tutorial, followed as it stands, and the pages that show what the commands print for its pipeline."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset
import pytest

from tests.console import Done, Shown, shown_in
from tests.crash import shared_java
from tests.crash.commandline import penstock
from tests.spark.page import Page

TUTORIAL = Page("tutorial", folder="docs")
INDEX = Page("index", folder="docs")
TAKE_OVER = Page("take_over")
SAVEPOINTS = Page("savepoints")


class Follower:
    """Who types the commands of a page into a terminal, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def follow(self, page: Page) -> None:
        for shown in shown_in(page.text):
            shown.assert_printed_by(self.run)

    def run(self, shown: Shown) -> Done:
        match shown.words:
            case ("python", "-c", _):
                return self._plain([sys.executable, *shown.words[1:]])
            case ("python", *rest):
                return shared_java.run(rest, directory=self.directory, more=shown.environment)
            case ("penstock", "run", *_):
                return shared_java.run(["-m", *shown.words], directory=self.directory)
            case ("penstock", *rest):
                ended = penstock(*rest, directory=self.directory)
                return Done(shown.words, ended.code, ended.out, ended.err)
        return self._plain(["sh", "-c", shown.command])

    def _plain(self, words: list[str]) -> Done:
        return subprocess.run(words, cwd=self.directory, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def follower(tmp_path_factory: pytest.TempPathFactory) -> Follower:
    """Who followed the tutorial."""
    follower = Follower(tmp_path_factory.mktemp("orders"))
    by_hand, exact = TUTORIAL.blocks("python")
    checkpoint = follower.directory / "by_hand" / "checkpoint"  # else relative to where the shared Java process was started
    (follower.directory / "by_hand.py").write_text(by_hand.replace('"by_hand/checkpoint"', repr(str(checkpoint))))
    (follower.directory / "exact.py").write_text(exact)
    (follower.directory / "orders.yaml").write_text(TUTORIAL.blocks("yaml")[0])
    follower.follow(TUTORIAL)
    return follower


def ids(directory: Path) -> list[int]:
    """Those of the orders in the lake, each as often as it is there."""
    found: list[int] = pyarrow.dataset.dataset(directory / "lake", format="parquet").to_table()["id"].to_pylist()
    return sorted(found)


def in_warehouse(directory: Path) -> list[int]:
    with sqlite3.connect(directory / "warehouse.db") as warehouse:
        return [number for (number,) in warehouse.execute("SELECT id FROM orders ORDER BY id")]


def test_a_job_by_hand_repeats_rows_and_penstock_does_not(follower: Follower) -> None:
    by_hand = ids(follower.directory / "by_hand")
    assert (len(by_hand), set(by_hand)) == (9, {*range(1, 7)})
    assert ids(follower.directory / "exact") == in_warehouse(follower.directory / "exact") == [*range(1, 8)]


def test_what_is_asked_on_the_first_day_is_answered_as_shown(follower: Follower) -> None:
    follower.follow(INDEX)
    [reading] = INDEX.blocks("python")
    read = follower.run(Shown("", {}, ("python", "-c", reading), None))
    assert (read.stdout, read.stderr) == ("7 orders, as of batch 2\n", "")


def test_a_job_is_taken_over_with_its_checkpoint(follower: Follower) -> None:
    (follower.directory / "taken.yaml").write_text(TAKE_OVER.blocks("yaml")[0])
    follower.follow(TAKE_OVER)
    assert ids(follower.directory / "taken") == in_warehouse(follower.directory / "taken") == [7]


def test_savepoints_are_kept_and_a_lost_checkpoint_is_made_again(follower: Follower) -> None:
    for name, text in zip(("shadow", "totals"), SAVEPOINTS.blocks("yaml"), strict=True):
        (follower.directory / f"{name}.yaml").write_text(text)
    follower.follow(SAVEPOINTS)
    assert ids(follower.directory / "shadow") == [8]
    assert ids(follower.directory / "exact") == in_warehouse(follower.directory / "exact") == [*range(1, 9)]
