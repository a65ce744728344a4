"""The self-test of put-if-absent: writers race for one key, and exactly one may win.

Some stores ignore conditional headers, or check and write in two steps; on them nothing can fence anything.
"""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Barrier

from penstock.core.model import new_nonce
from penstock.errors import LedgerMismatch, OutcomeUnknown, StoreIgnoresConditions
from penstock.ledger.store import ConditionalStore

ROUNDS = 20
WRITERS = 4
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

Create = Callable[[bytes], bool]
Look = Callable[[], bytes | None]


def prove_conditions(store: ConditionalStore, *, folder: str) -> None:
    """Let writers race for scratch keys in a new folder beside `folder`, removed after success. Raises StoreIgnoresConditions."""
    proof = f"{folder}-{new_nonce()}"
    with racing_threads() as threads:
        for number in range(ROUNDS):
            key = f"{proof}/{number:03d}"
            create = partial(store.put_if_absent, key)
            race([create] * WRITERS, threads, look=partial(store.get, key), location=store.location)
            store.delete(key)


def racing_threads() -> ThreadPoolExecutor:
    """Return the threads for all rounds: to start new ones for each would take longer than the races."""
    return ThreadPoolExecutor(WRITERS, "self-test")


def race(writers: Sequence[Create], threads: ThreadPoolExecutor, *, look: Look, location: str) -> None:
    """Let all `writers` create at once, then the first of them once more. Raises StoreIgnoresConditions unless one wins.

    `threads` has one for each writer: none begins before all do. Raises OutcomeUnknown if answers were lost and nothing is there.
    """
    bodies = [f"writer {number}".encode() for number in range(len(writers))]
    barrier = Barrier(len(writers))

    def create(writer: Create, body: bytes) -> bool:
        barrier.wait()
        return writer(body)

    tries: list[Future[bool]] = [threads.submit(create, writer, body) for writer, body in zip(writers, bodies, strict=True)]
    lost = [error for won in tries if isinstance(error := won.exception(), OutcomeUnknown)]
    winners = [body for body, won in zip(bodies, tries, strict=True) if won.exception() not in lost and won.result()]
    if not winners:  # I12: the winner's answer was lost, or its client repeated the request and met its own write
        found = look()
        if found is None and lost:
            raise lost[0]
        winners = [body for body in bodies if body == found]
    again = writers[0](b"too late")
    if len(winners) != 1 or again or look() != winners[0]:
        raise StoreIgnoresConditions(
            f"{location} let {len(winners) + again} writers create the same object, expected exactly one: "
            "it does not honour put-if-absent, so two drivers could both succeed.",
            remedy="Keep the ledger elsewhere: an SQLite file on a local disk, or a database.",
        )


def prove_locks(connection: sqlite3.Connection, path: Path) -> None:
    """Take the write lock and let another process ask for it. Raises StoreIgnoresConditions if that process gets it.

    Raises sqlite3.OperationalError for a file that cannot be written: there SQLite begins, and takes no lock.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version:d}")  # a write that changes nothing
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
    with racing_threads() as threads:
        for number in range(ROUNDS):
            create = partial(_create, uri, table, number)
            race([create] * WRITERS, threads, look=partial(_look, connection, table, number), location=location)
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
