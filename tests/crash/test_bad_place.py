"""Directories that cannot be written, files where directories should be, databases that are locked or of another shape."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.errors import (
    assert_between,
    assert_continues,
    assert_told,
    assert_unchanged,
    begun,
    content,
    feed,
    new_world,
    run,
)
from tests.crash.mounting import read_only
from tests.crash.world import World

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(120)]

READ_ONLY = "the file system is read-only"


def with_places(world: World) -> World:
    """Ledger and database each in a directory of its own."""
    for place in ("ledger", "database"):
        (world.root / place).mkdir()
    (world.root / "warehouse.db").symlink_to(world.root / "database" / "warehouse.db")
    world.file.write_text(world.file.read_text() + "ledger: sqlite:///ledger/ledger.db\n")
    return world


# --- unwritable

LATER = {
    "lake": ("Failed", "The account"),
    "state/checkpoint": ("Failed", "Spark cannot write the checkpoint"),
    "state/spool": ("StageFailed", "The spool piece"),
    "ledger": ("Failed", "The ledger"),
}


@pytest.mark.parametrize(("place", "kind", "said"), [(place, *told) for place, told in LATER.items()], ids=LATER)
def test_a_place_becomes_unwritable(spark: SparkSession, tmp_path: Path, place: str, kind: str, said: str) -> None:
    world = begun(with_places(new_world(tmp_path, wide=True)))
    feed(world, rows=3_000)  # more than travels in a decision, so that the spool is needed
    before = content(world)
    with read_only(world.root / place):
        assert_told(run(world), kind, code=1, said=[said, str(world.root / place), READ_ONLY], remedy="Mount it for writing")
    assert_between(world, before)
    assert_continues(world)


@pytest.mark.parametrize("place", ["lake/ewr", "lake/.penstock-staging"])
def test_an_account_and_its_staging_are_mounted_apart(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """Of one file system, but nothing can be renamed from one into the other, which is seen before anything is decided."""
    world = begun(new_world(tmp_path))
    before = content(world)
    with read_only(world.root / place):
        said = [str(world.account("EWR")), "on different file systems or mounts"]
        assert_told(run(world), "Refused", code=3, said=said, remedy="Set the account's option `staging`")
    assert_unchanged(world, before)
    assert_continues(world)


AT_FIRST = {
    "lake": "The account",
    "state/checkpoint": "Spark cannot write the checkpoint",
    "state/spool": "The spool directory",
    "ledger": "The folder of the ledger",
    "database": "The database",
}


@pytest.mark.parametrize(("place", "said"), AT_FIRST.items(), ids=AT_FIRST)
def test_a_place_is_unwritable_from_the_start(spark: SparkSession, tmp_path: Path, place: str, said: str) -> None:
    world = with_places(new_world(tmp_path))
    (world.root / place).mkdir(parents=True, exist_ok=True)
    with read_only(world.root / place):
        assert_told(run(world), "Failed", code=1, said=[said, str(world.root / place), READ_ONLY], remedy="Mount it for writing")
    assert_continues(world)


IN_THE_WAY = {
    "lake": "The account",
    "lake/ewr": "The account",
    "state/spool": "The spool directory",
    "database": "The database",
}


@pytest.mark.parametrize(("place", "said"), IN_THE_WAY.items(), ids=IN_THE_WAY)
def test_a_file_is_in_the_way(spark: SparkSession, tmp_path: Path, place: str, said: str) -> None:
    world = begun(with_places(new_world(tmp_path)))
    before, right = content(world), world.root / place
    aside = right.rename(world.root / "aside")
    right.write_text("in the way\n")
    assert_told(run(world), "Failed", code=1, said=[said, str(right), "a file is where"], remedy="Move that file away")
    right.unlink()
    aside.rename(right)
    assert_unchanged(world, before)
    assert_continues(world)


@pytest.mark.parametrize("ledger", ["sqlite:///ledger/ledger.db", "./ledger/entries"], ids=["file", "directory"])
def test_the_ledger_is_gone(spark: SparkSession, tmp_path: Path, ledger: str) -> None:
    """Its disk is not mounted, say: an empty ledger is never taken for a new pipeline."""
    world = new_world(tmp_path)
    world.file.write_text(world.file.read_text() + f"ledger: {ledger}\n")
    before = content(begun(world))
    aside = (world.root / "ledger").rename(world.root / "aside")
    said = ["The ledger is empty", str(world.checkpoint), "goes on with batch 1"]
    assert_told(run(world), "BatchGap", code=3, said=said, remedy="Put the ledger back if it is lost, moved or not mounted")
    assert not (world.root / "ledger").exists()
    aside.rename(world.root / "ledger")
    assert_unchanged(world, before)
    assert_continues(world)


@pytest.mark.parametrize(
    ("place", "account"),
    [("lake", "'EWR' of sink 'lake'"), ("warehouse.db", "Sink 'warehouse'")],
    ids=["accounts", "database"],
)
def test_what_was_delivered_into_is_gone(spark: SparkSession, tmp_path: Path, place: str, account: str) -> None:
    """Its disk is not mounted, say: an empty place is never taken for a new one once rows were published there."""
    world = begun(begun(new_world(tmp_path)))
    before = content(world)
    aside = (world.root / place).rename(world.root / "aside")
    assert_told(run(world), "Refused", code=3, said=[account, "no trace of the"], remedy="Mount it or restore it")
    assert not (world.root / place).exists()
    aside.rename(world.root / place)
    assert_unchanged(world, before)
    assert_continues(world)


# --- the database


def test_a_file_that_is_no_database(spark: SparkSession, tmp_path: Path) -> None:
    world = begun(new_world(tmp_path))
    before, right = content(world), world.root / "warehouse.db"
    aside = right.rename(world.root / "aside")
    right.write_bytes(b"no database\n" * 500)
    assert_told(run(world), "Failed", code=1, said=[str(right), "file is not a database"], remedy="Restore it from a backup")
    right.unlink()
    aside.rename(right)
    assert_unchanged(world, before)
    assert_continues(world)


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another process writes to the database all the time."""
    command = [sys.executable, "-c", HOLDER, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "locked\n"
        yield
        holder.stdin.close()
        assert holder.wait() == 0


@pytest.mark.parametrize("database", ["warehouse.db", "state/ledger.db"])
def test_a_locked_database(spark: SparkSession, tmp_path: Path, database: str) -> None:
    world = begun(new_world(tmp_path))
    before = content(world)
    with locked(world.root / database):
        said = [str(world.root / database), "locked"]
        assert_told(run(world), "Retryable", code=75, said=said, remedy="ry again")
    assert_unchanged(world, before)
    assert_continues(world)


# --- another schema

FIRST = "origin TEXT, month INTEGER, payload TEXT"
TABLES = {
    "missing": (f"id INTEGER, {FIRST}", "missing in the table: amount;", "`exclude: [amount]` of the sink"),
    "foreign": (f"id INTEGER, {FIRST}, amount REAL, more TEXT NOT NULL", "and without a default: more", "change the transform"),
    "text": (f"id TEXT, {FIRST}, amount REAL", "Column 'id' of table 'flights' is TEXT,", "in the transform"),
    "integer": (f"id INTEGER, {FIRST}, amount INTEGER", "'amount' of table 'flights' is INTEGER,", "in the transform"),
}
"""Columns of a table, what is said of them, and the remedy."""


@pytest.mark.parametrize(("columns", "said", "remedy"), TABLES.values(), ids=TABLES)
def test_a_table_of_another_shape(spark: SparkSession, tmp_path: Path, columns: str, said: str, remedy: str) -> None:
    world = new_world(tmp_path)
    execute(world, f"CREATE TABLE flights ({columns})")
    assert_told(run(world), "Refused", code=3, said=[said], remedy=remedy)
    assert list((world.root / "lake").rglob("*.parquet")) == []
    execute(world, "DROP TABLE flights")
    assert_continues(world)


def execute(world: World, statement: str) -> None:
    with closing(sqlite3.connect(world.root / "warehouse.db", isolation_level=None)) as connection:
        connection.execute(statement)


def test_a_column_of_the_table_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    world = begun(new_world(tmp_path))
    before = content(world)
    execute(world, "ALTER TABLE flights RENAME COLUMN amount TO sum")
    said = ["missing in the table: amount;"]
    assert_told(run(world), "Refused", code=3, said=said, remedy="ALTER TABLE")
    execute(world, "ALTER TABLE flights RENAME COLUMN sum TO amount")
    assert_unchanged(world, before)
    assert_continues(world)


def test_a_table_that_refuses_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The batch is decided, and the lake shows it."""
    world = begun(new_world(tmp_path))
    before = content(world)
    execute(world, "CREATE TRIGGER no BEFORE INSERT ON flights BEGIN SELECT RAISE(ABORT, 'not today'); END")
    said = ["warehouse.db refused a row: not today"]
    assert_told(run(world), "PublishFailed", code=1, said=said, remedy="Drop the constraint")
    execute(world, "DROP TRIGGER no")
    assert_between(world, before)
    assert_continues(world)


def test_the_table_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    """An empty new one would hide the loss."""
    world = begun(new_world(tmp_path))
    execute(world, "ALTER TABLE flights RENAME TO archive")
    said = ["Table 'flights' is gone, and 30 rows with it"]
    assert_told(run(world), "Refused", code=3, said=said, remedy="Rename it back or restore it")
    execute(world, "ALTER TABLE archive RENAME TO flights")
    assert_continues(world)


SCHEMAS = {
    "another type": (
        ("SELECT CAST(id AS STRING) AS id, origin, month, payload, amount FROM flights", "[month]"),
        "Column 'id' is int32 in the files of account 'EWR', and string in the rows",
        "Cast it in the transform to what it was",
    ),
    "another type of a partition": (
        ("SELECT id, origin, CAST(month AS STRING) AS month, payload, amount FROM flights", "[month]"),
        "Column 'month' is int32 in the files of account 'EWR', and string in the rows",
        "Cast it in the transform to what it was",
    ),
    "other partitions": (
        ("SELECT * FROM flights", "[origin, month]"),
        'sinks.lake.partition_by changed from ["month"] to ["origin", "month"]. What is there has other partitions',
        "Set it back",
    ),
}


@pytest.mark.parametrize(("change", "said", "remedy"), SCHEMAS.values(), ids=SCHEMAS)
def test_files_of_another_schema(spark: SparkSession, tmp_path: Path, change: tuple[str, str], said: str, remedy: str) -> None:
    """No reader could read the account as one table any more."""
    world = begun(new_world(tmp_path))
    before, right = content(world), world.file.read_text()
    query, partition_by = change
    world.rewrite(("sinks:\n", f"transform: {{sql: '{query}'}}\nsinks:\n"), ("[month]", partition_by))
    kind = "Refused" if partition_by == "[month]" else "PipelineChanged"
    assert_told(run(world), kind, code=3, said=[said], remedy=remedy)
    assert_unchanged(world, before)
    world.file.write_text(right)
    assert_continues(world)
