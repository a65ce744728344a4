"""Places, or a ledger, that show something else than what was delivered: refused before anything is staged."""

import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import LedgerMismatch, Refused
from tests.spark.streams import numbers, put
from tests.spark.target import Target

pytestmark = pytest.mark.spark


@pytest.fixture
def target(tmp_path: Path) -> Target:
    put(tmp_path / "in", "0.csv", 0, 1)
    put(tmp_path / "in", "1.csv", 2, 3)
    return Target(tmp_path)


def copied(target: Target) -> None:
    """What a nightly backup of the database, or of the accounts with their staging, looks like."""
    with sqlite3.connect(target.root / "warehouse.db") as connection:
        connection.execute("VACUUM INTO ?", [str(target.root / "copy.db")])
    connection.close()
    shutil.copytree(target.root / "lake", target.root / "copy")


def restored(target: Target, place: str) -> None:
    if place == "lake":
        shutil.rmtree(target.root / "lake")
        (target.root / "copy").rename(target.root / "lake")
        return
    for file in target.root.glob("warehouse.db*"):
        file.unlink()
    (target.root / "copy.db").rename(target.root / "warehouse.db")


@pytest.mark.parametrize("place", ["lake", "warehouse.db"])
def test_an_older_copy_of_what_was_delivered_into_is_refused(spark: SparkSession, target: Target, place: str) -> None:
    """The batches between the copy and the newest decision would be missing for ever, unseen."""
    target.deliver(numbers(spark, target.root))
    copied(target)
    put(target.root / "in", "3.csv", 4, 5)
    target.deliver(numbers(spark, target.root))
    put(target.root / "in", "4.csv", 6, 7)
    target.deliver(numbers(spark, target.root))
    restored(target, place)
    put(target.root / "in", "5.csv", 8, 9)
    with pytest.raises(Refused, match="an older copy is in its place"):
        target.deliver(numbers(spark, target.root))


def test_accounts_whose_directories_were_swapped_are_refused(spark: SparkSession, target: Target) -> None:
    for _ in range(2):
        target.deliver(numbers(spark, target.root))
        put(target.root / "in", "3.csv", 4, 5)
    places = {"even": target.root / "lake/odd", "odd": target.root / "lake/even"}
    swapped = penstock.Parquet(accounts=places, route={"sql": "if(n % 2 = 0, 'even', 'odd')"})
    with pytest.raises(Refused, match="something else is mounted in its place"):
        target.deliver(numbers(spark, target.root), sinks={"lake": swapped, "table": target.table})


def test_a_ledger_that_lost_its_newest_decision_is_refused(spark: SparkSession, target: Target) -> None:
    """Restored from a copy, or a standby that lacked the entry took over: the batch would be decided and published again."""
    settings = {"ledger": f"sqlite:///{target.root}/ledger/ledger.db", "sinks": {"table": target.table}}
    target.deliver(numbers(spark, target.root), **settings)
    shutil.copytree(target.root / "ledger", target.root / "copy")
    put(target.root / "in", "3.csv", 4, 5)
    target.deliver(numbers(spark, target.root), **settings)
    shutil.rmtree(target.root / "ledger")
    (target.root / "copy").rename(target.root / "ledger")
    (target.checkpoint / "commits" / "2").unlink()  # as if the driver had died before Spark wrote down that it was done
    with pytest.raises(LedgerMismatch, match="another ledger, or an older copy, is in its place"):
        target.deliver(numbers(spark, target.root), **settings)
    assert target.rows() == Counter((n,) for n in range(6))
