"""A ledger in an SQLite file: the position is the primary key, and one immediate transaction is one append.

The table may stand beside the user's own tables: a sink in the same file commits its rows in the ledger's transaction. Source:
sqlite.org, "Isolation In SQLite" and "Write-Ahead Logging"; `synchronous=FULL` makes a COMMIT durable before it returns. Reading
creates nothing.
"""

import sqlite3
from contextlib import suppress
from pathlib import Path
from threading import RLock
from urllib.parse import quote

from penstock.core.codec import encode_entry
from penstock.core.faults import FaultPoint
from penstock.core.model import Entry, PipelineName, Position
from penstock.errors import Failed, OutcomeUnknown, PositionTaken, StoreIgnoresConditions
from penstock.ledger.base_ledger import BaseLedger, require_tail_kept
from penstock.ledger.sqlite_errors import require_not_emptied, translate_error, translate_errors
from penstock.ledger.sqlite_self_test import collect_proofs, prove_locks, prove_undamaged, prove_writers
from penstock.protocols import InTransaction
from penstock.support.filesystem_errors import problem_of
from penstock.support.private_files import create_private, make_private_directory

INSERT = FaultPoint("ledger.sqlite_insert", "The entry is inserted at its position, in an open transaction.")
COMMIT = FaultPoint("ledger.sqlite_commit", "The entry's transaction is committed.")
PRUNE = FaultPoint("ledger.sqlite_prune", "Old entries are deleted in one transaction.")

BUSY_TIMEOUT_S = 10.0

_CREATE = """
CREATE TABLE IF NOT EXISTS penstock_ledger (position INTEGER PRIMARY KEY, pipeline TEXT NOT NULL, entry TEXT NOT NULL)
"""
_EXISTS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'penstock_ledger'"
_TAIL = "SELECT position, entry FROM penstock_ledger ORDER BY position DESC LIMIT 1"
_AT = "SELECT position, entry FROM penstock_ledger WHERE position = ?"
_OWNER = "SELECT position, pipeline FROM penstock_ledger ORDER BY position DESC LIMIT 1"
_INSERT = "INSERT INTO penstock_ledger (position, pipeline, entry) VALUES (?, ?, ?)"
_PRUNE = "DELETE FROM penstock_ledger WHERE position < ?"


class SqliteLedger(BaseLedger):
    """A `Ledger` in the SQLite file at `path`. Thread-safe: one connection, one call at a time.

    Waits `busy_timeout_s` for another writer of the file, then raises Retryable.
    """

    def __init__(self, path: Path, *, pipeline: PipelineName, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        self._pipeline = pipeline
        self._busy_timeout_s = busy_timeout_s
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._writable = False

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def home(self) -> str | None:
        """`sqlite:` and the file's real path. `within` gets the `sqlite3.Connection`."""
        return f"sqlite:{self._path.resolve()}"

    def tail(self) -> Entry | None:
        return self._select(_TAIL)

    def read(self, position: Position) -> Entry | None:
        return self._select(_AT, position)

    def append(self, entry: Entry, *, within: InTransaction | None = None) -> None:
        """An exception of `within` is raised unchanged, and nothing is written."""
        data = encode_entry(entry).decode("ascii")
        with self._lock:
            connection = self._open_for_writing()
            with translate_errors(self.location):
                connection.execute("BEGIN IMMEDIATE")
            try:
                with translate_errors(self.location), INSERT.around(error=_broken_disk, lost=_broken_disk):
                    self._insert(connection, entry, data)  # I7: the position is the primary key
                if within is not None:
                    within(connection)
            except BaseException:
                self._drop()
                raise
            self._commit(connection)

    def prove(self) -> None:
        """Requires write-ahead mode, an undamaged table, locks that hold between processes, and one winner of a race."""
        with self._lock, translate_errors(self.location):
            connection = self._open_for_writing()
            prove_undamaged(connection, self._path)
            prove_locks(connection, self._path)
            prove_writers(connection, self._uri("rw"), location=self.location)

    def prune(self, *, below: Position) -> None:
        """Raises ValueError if the tail would be pruned: while it stays, a pruned position counts as taken."""
        with self._lock:
            connection = self._open_for_writing()
            tail = self.tail()
            require_tail_kept(tail, below=below)
            try:
                with translate_errors(self.location), PRUNE.around(error=_broken_disk, lost=_broken_disk):
                    connection.execute(_PRUNE, (below,))
                with translate_errors(self.location):
                    collect_proofs(connection)
            except BaseException:  # the next batch uses this ledger, but never a connection on which something failed
                self._drop()
                raise

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self._drop()

    # --- reading and writing

    def _select(self, statement: str, *values: int) -> Entry | None:
        with self._lock:
            if self._connection is None and self._path.exists():
                self._connection = self._connect("rw")
            if self._connection is None:
                return None
            with translate_errors(self.location):
                if not _has_table(self._connection):
                    return None
                row = self._connection.execute(statement, values).fetchone()
        return None if row is None else self._decode(row[1].encode(), row[0])

    def _insert(self, connection: sqlite3.Connection, entry: Entry, data: str) -> None:
        row = connection.execute(_OWNER).fetchone()
        tail, pipeline = row or (0, entry.pipeline)
        for name in (entry.pipeline, pipeline):
            self._require_pipeline(name)
        if entry.position <= tail:
            raise PositionTaken
        if entry.position != tail + 1:
            raise self._gap(entry)
        connection.execute(_INSERT, (entry.position, entry.pipeline, data))

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            with COMMIT.around(error=_broken_disk, lost=_broken_disk):
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._drop()
            translated = translate_error(error, self.location)
            raise OutcomeUnknown(
                f"Whether the newest entry was written is unknown: {translated.message}", remedy=translated.remedy
            ) from error
        except BaseException:
            self._drop()
            raise

    # --- the connection

    def _open_for_writing(self) -> sqlite3.Connection:
        if self._connection is None or not self._writable:
            self._drop()
            self._create()
            self._connection = self._connect("rw")
            self._make_writable(self._connection)
            self._writable = True
        return self._connection

    def _create(self) -> None:
        """Create the file as private: SQLite gives its own files beside it the same permissions."""
        try:
            make_private_directory(self._path.parent)
            if not self._path.exists():
                create_private(self._path)
        except OSError as error:
            found = problem_of(error)
            raise Failed(
                f"The folder of the ledger {self._path} could not be created: {found.reason}.",
                remedy=f"{found.advice}, then start again.",
            ) from error

    def _connect(self, mode: str) -> sqlite3.Connection:
        require_not_emptied(self._path)
        with translate_errors(self.location):
            return sqlite3.connect(
                self._uri(mode), uri=True, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
            )

    def _uri(self, mode: str) -> str:
        return f"file:{quote(str(self._path))}?mode={mode}"

    def _make_writable(self, connection: sqlite3.Connection) -> None:
        with translate_errors(self.location):
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            connection.execute("PRAGMA synchronous=FULL")
            if not _has_table(connection):
                connection.execute(_CREATE)
        if mode != "wal":
            raise StoreIgnoresConditions(
                f"SQLite keeps {self._path} in journal mode {mode}, expected wal: the file system lacks shared memory.",
                remedy="Put the ledger on a local disk.",
            )

    def _drop(self) -> None:
        """Roll back and close, so that only the file says what the connection did.

        Closing alone would leave the lock while a cursor of the connection lives, for example in an exception's traceback.
        """
        connection, self._connection, self._writable = self._connection, None, False
        if connection is not None:
            with suppress(sqlite3.Error):  # only the file counts, whatever the closing connection raises
                connection.rollback()
            with suppress(sqlite3.Error):
                connection.close()


def _has_table(connection: sqlite3.Connection) -> bool:
    return connection.execute(_EXISTS).fetchone() is not None


def _broken_disk(point: str) -> Exception:
    return sqlite3.OperationalError(f"disk I/O error at {point}")
