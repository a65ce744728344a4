"""The operator's acts after an accident, through the command line: what is asked changes nothing, what is done is exact."""

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.commandline import Ended, penstock
from tests.crash.world import ACCOUNTS, Row, World, account_rows, assert_same, database_rows, make_world

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(300)]

SEED = 5
UNPUBLISHED = "rename.move=error@14"
"""Batch 1 is decided, in SQLite it is published, in the lake it is not."""


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    """Batch 0 is delivered, batch 1 is decided."""
    made = make_world(tmp_path / "world", files=4, rows_per_file=60, seed=SEED, per_trigger=1)
    assert penstock("run", str(made.file), "--json", faults=UNPUBLISHED).code == 1
    return made


def act(world: World, *words: str, code: int = 0) -> Ended:
    ended = penstock(words[0], str(world.file), *words[1:])
    assert ended.code == code, str(ended)
    return ended


def entries(world: World) -> list[tuple[int, str]]:
    """The ledger as it is on the disk."""
    with closing(sqlite3.connect(f"file:{world.root / 'state' / 'ledger.db'}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT position, entry FROM penstock_ledger ORDER BY position").fetchall()


def everything(world: World) -> "Counter[Row]":
    return sum(world.expected.values(), Counter[Row]())


def test_what_was_decided_is_shown_and_nothing_is_changed_by_looking(world: World) -> None:
    before = entries(world), sorted(world.root.rglob("*.staged"))
    rows = act(world, "history", "--json").last
    assert [(row["kind"], row["batch_id"]) for row in rows] == [("decided", 1), ("decided", 0), ("opened", None)]
    assert rows[0]["rows_in"] == 60
    (offsets,) = act(world, "offsets", "--batch", "1", "--json").last["offsets"]
    assert (offsets["source"], offsets["start"], offsets["end"]) == ("flights", '{"logOffset":0}', '{"logOffset":1}')
    assert '{"logOffset":1}' in act(world, "offsets", "--batch", "1").out
    assert "decided" in act(world, "history").out
    assert "lake" in act(world, "history", "--batch", "1").out
    missing = act(world, "offsets", "--batch", "7", code=1)
    assert missing.err.splitlines() == [
        "error: The ledger of 'crash' holds no decision of batch 7.",
        f"`penstock history {world.file}` lists what it holds.",
    ]
    verified = act(world, "verify", "--json").last
    assert (verified["ok"], verified["unsettled"]) == (True, 1)
    assert verified["sinks"]["lake"]["as_of"]["batch_id"] == 0
    assert "Batch 1 is decided, was not published everywhere, and is left out" in " ".join(act(world, "verify").out.split())
    assert (entries(world), sorted(world.root.rglob("*.staged"))) == before


def test_recovering_publishes_what_was_decided_and_no_more(world: World) -> None:
    first = act(world, "recover").out
    assert "Batch 1 is published everywhere (generation 2)." in first
    assert "published now" in first
    again = act(world, "recover", "--json").last
    assert (again["generation"], again["batch_id"], again["swept"]) == (3, 1, [])
    assert {name: share["already"] for name, share in again["sinks"].items()} == {"lake": True, "warehouse": True}
    assert database_rows(world.root / "warehouse.db").total() == 120
    assert act(world, "verify", "--json").last["sinks"]["lake"]["rows_found"] == 120
    assert list(world.staging()) == []
    act(world, "run", "--json")
    world.assert_exact()


def test_sweeping_spares_what_is_decided_and_what_may_still_be(world: World) -> None:
    decided = sorted(world.root.rglob("*.staged"))
    assert decided
    assert act(world, "sweep").out == "There is nothing to sweep.\n"
    assert act(world, "sweep", "--yes", "--json").last == {"done": True, "collected": []}
    assert sorted(world.root.rglob("*.staged")) == decided
    assert penstock("run", str(world.file), "--json", faults="stage.report=error@1").code != 0
    undecided = sorted(world.root.rglob("*.staged"))
    assert undecided
    assert act(world, "sweep", "--yes", "--json").last == {"done": True, "collected": []}, "a driver may be about to decide it"
    assert sorted(world.root.rglob("*.staged")) == undecided
    assert "of dead staging." in act(world, "recover").out
    assert list(world.staging()) == []
    act(world, "run", "--json")
    world.assert_exact()


def test_adopting_a_new_checkpoint_publishes_first_what_the_old_one_decided(world: World) -> None:
    shutil.rmtree(world.checkpoint)
    before = entries(world)
    asked = act(world, "adopt").out
    assert "TWICE" in asked
    assert asked.endswith("Nothing was changed. Do it with --yes --reason TEXT.\n")
    act(world, "adopt", "--yes", code=2)
    assert entries(world) == before
    done = act(world, "adopt", "--yes", "--reason", "the disk was lost").out
    assert done.endswith("Adopted: the pipeline goes on with batch 0.\n")
    assert act(world, "verify", "--json").last["sinks"]["lake"]["rows_found"] == 120
    rows = act(world, "history", "--json").last
    assert [row["kind"] for row in rows] == ["adopted", "opened", "decided", "decided", "opened"]
    act(world, "run", "--json")
    twice = account_total(world, "lake")
    assert twice == account_total(world, "warehouse") == 120 + 240


def account_total(world: World, sink: str) -> int:
    found: int = act(world, "verify", "--json").last["sinks"][sink]["rows_found"]
    return found


@pytest.mark.parametrize(
    "words", [("run",), ("recover",), ("adopt", "--yes", "--reason", "the disk was lost")], ids=lambda w: w[0]
)
def test_a_damaged_ledger_is_refused_by_whatever_would_write_to_it(world: World, words: tuple[str, ...]) -> None:
    if words[0] == "adopt":
        shutil.rmtree(world.checkpoint)
    ledger = world.root / "state" / "ledger.db"
    tear_older_decision(ledger)
    torn = ledger.read_bytes()
    shown = sorted(path for path in (world.root / "lake").rglob("*") if path.is_file())
    refused = act(world, *words, code=3)
    assert "is damaged" in refused.err
    assert refused.err.splitlines()[1] == "Restore the file from a backup."
    assert ledger.read_bytes() == torn
    assert sorted(path for path in (world.root / "lake").rglob("*") if path.is_file()) == shown


def tear_older_decision(ledger: Path) -> None:
    """The page that batch 0's decision goes on in is lost: newer entries can be read, so nothing looks wrong."""
    data = bytearray(ledger.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    data[2 * size : 3 * size] = bytes(size)
    ledger.write_bytes(data)


def test_the_ledger_of_another_pipeline_is_refused(world: World) -> None:
    world.rewrite(("pipeline: crash", "pipeline: other"))
    for words in (("run",), ("recover",), ("sweep",), ("history",), ("adopt",)):
        refused = act(world, *words, code=3)
        assert "belongs to pipeline 'crash', not to 'other'" in refused.err
        assert len(refused.err.splitlines()) == 2


def test_a_deleted_ledger_is_refused_and_cannot_be_adopted_over_what_is_published(world: World) -> None:
    act(world, "run", "--json")
    world.assert_exact()
    (world.root / "state" / "ledger.db").unlink()
    assert "BatchGap" in act(world, "run", "--json", code=3).out
    shutil.copy(world.root / "incoming" / "part-0000.csv", world.root / "incoming" / "more.csv")
    adopt = ("adopt", "--json", "--yes", "--reason", "the ledger was lost")
    for words in (adopt, adopt, ("recover", "--json")):
        assert "LedgerMismatch" in act(world, *words, code=3).out
    assert "BatchGap" in act(world, "run", "--json", code=3).out
    for account in ACCOUNTS:
        assert_same(account, found=account_rows(world.account(account)), expected=world.expected[account])
    assert_same("warehouse", found=database_rows(world.root / "warehouse.db"), expected=everything(world))


def test_check_looks_at_everything_once(world: World) -> None:
    found = act(world, "check", "--json").last
    looked_at = Counter(finding["subject"] for finding in found["findings"])
    accounts = {f"account {world.root / 'lake' / name}" for name in ("ewr", "jfk", "lga")}
    rows = {"rows for lake", "rows for warehouse"}
    from_tasks = {f"{account}, from the executors" for account in accounts}
    assert set(looked_at) == accounts | from_tasks | rows | {"sink warehouse", "places", "ledger", "checkpoint", "executors"}
    assert set(looked_at.values()) == {1}
