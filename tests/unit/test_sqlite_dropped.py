"""A connection that failed lets go of its lock at once, though the exception, and with it a cursor, is still held by somebody."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.core.faults import arm
from penstock.errors import Failed
from penstock.ledger.sqlite import SqliteLedger
from penstock.sink.sqlite.database import Database
from penstock.testing.entries import PIPELINE, opened_entry


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def write(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def test_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    kept = []

    def within(transaction: object) -> None:
        assert isinstance(transaction, sqlite3.Connection)
        transaction.execute("CREATE TABLE t (n)")
        transaction.execute("INSERT INTO t VALUES (1), (2)")
        kept.append(transaction.execute("SELECT n FROM t"))
        kept[-1].fetchone()
        raise Failed("It broke.", remedy="Mend it.")

    with pytest.raises(Failed, match="It broke") as held:
        SqliteLedger(path, pipeline=PIPELINE).append(opened_entry(), within=within)
    write(path)
    assert held.value is not None


def test_a_database_of_a_sink(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "data.db"))
    database.create()
    connection = database.writable()
    connection.execute("CREATE TABLE t (n)")
    connection.execute("INSERT INTO t VALUES (1), (2)")
    connection.execute("BEGIN IMMEDIATE")
    cursor = connection.execute("SELECT n FROM t")
    cursor.fetchone()
    database.drop()
    write(tmp_path / "data.db")
    assert cursor is not None
