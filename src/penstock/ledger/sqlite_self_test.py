"""The self-test of an SQLite file: its locks hold between processes, and of several racing writers one wins."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

from penstock.core.model import new_nonce
from penstock.errors import LedgerMismatch, StoreIgnoresConditions
from penstock.ledger.self_test import ROUNDS, WRITERS, race

CHECKED_PAGES = 10_000
PREFIX = "penstock_ledger_proof_"
_HELD, _FREE = 42, 43
_TRY_LOCK = f"""
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    sys.exit({_HELD} if "locked" in str(error) else str(error))
sys.exit({_FREE})
"""


def prove_locks(connection: sqlite3.Connection, path: Path) -> None:
    """Take the write lock and let another process ask for it. Raises StoreIgnoresConditions if that process gets it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        other = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TRY_LOCK, str(path)], capture_output=True, check=False, text=True
        )
    finally:
        connection.execute("ROLLBACK")
    if other.returncode != _HELD:
        found = "got it too" if other.returncode == _FREE else f"failed: {other.stderr.strip()}"
        raise StoreIgnoresConditions(
            f"While this process held the write lock of {path}, another one {found}; expected that it is refused.",
            remedy="Put the ledger on a local disk: the locks of this file system do not hold.",
        )


def prove_undamaged(connection: sqlite3.Connection, path: Path) -> None:
    """Check the ledger's table, unless the file is so large that it would delay a start. Raises LedgerMismatch."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if pages > CHECKED_PAGES:
        return
    found = connection.execute("PRAGMA quick_check(penstock_ledger)").fetchall()
    if found != [("ok",)]:
        reason = found[0][0].splitlines()[-1].rstrip(".")  # a line with the database's name may come first
        raise LedgerMismatch(f"The ledger in {path} is damaged: {reason}.", remedy="Restore the file from a backup.")


def prove_writers(connection: sqlite3.Connection, uri: str, *, location: str) -> None:
    """Let writers with their own connections race in a scratch table, dropped on success. Raises StoreIgnoresConditions."""
    table = f"{PREFIX}{new_nonce()}"
    connection.execute(f"CREATE TABLE {table} (name INTEGER PRIMARY KEY, body BLOB)")
    for number in range(ROUNDS):
        create = partial(_create, uri, table, number)
        race([create] * WRITERS, look=partial(_look, connection, table, number), location=location)
    connection.execute(f"DROP TABLE {table}")


def _create(uri: str, table: str, number: int, body: bytes) -> bool:
    with closing(sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None)) as connection:
        try:
            connection.execute(f"INSERT INTO {table} VALUES (?, ?)", (number, body))  # noqa: S608 - the name is ours
        except sqlite3.IntegrityError:
            return False
    return True


def _look(connection: sqlite3.Connection, table: str, number: int) -> bytes | None:
    row = connection.execute(f"SELECT body FROM {table} WHERE name = ?", (number,)).fetchone()  # noqa: S608
    return None if row is None else bytes(row[0])


def collect_proofs(connection: sqlite3.Connection) -> None:
    """Drop the scratch tables of runs that were killed during their self-test."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB ?", (f"{PREFIX}*",)).fetchall()
    for (table,) in found:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
