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
from penstock.errors import (
    Failed,
    LedgerMismatch,
    OutcomeUnknown,
    PenstockError,
    PositionTaken,
    Retryable,
    StoreIgnoresConditions,
)
from penstock.ledger.base_ledger import BaseLedger, require_tail_kept
from penstock.ledger.self_test import collect_proofs, prove_locks, prove_undamaged, prove_writers
from penstock.ledger.sqlite_files import StillFile, is_writable, still_file
from penstock.protocols import InTransaction
from penstock.support.connection import ServerConnection
from penstock.support.filesystem_errors import FULL, file_problem, translate_os_errors
from penstock.support.private_files import create_durably, create_private, make_private_directory

INSERT = FaultPoint("ledger.sqlite_insert", "The entry is inserted at its position, in an open transaction.")
COMMIT = FaultPoint("ledger.sqlite_commit", "The entry's transaction is committed.")
PRUNE = FaultPoint("ledger.sqlite_prune", "Old entries are deleted in one transaction.")

BUSY_TIMEOUT_S = 10.0
_LOOKS = 3
"""How often a file is read that changes meanwhile: a driver begins or ends once."""

_CREATE = """
CREATE TABLE IF NOT EXISTS penstock_ledger (position INTEGER PRIMARY KEY, pipeline TEXT NOT NULL, entry TEXT NOT NULL)
"""
_CREATE_LEASE = "CREATE TABLE IF NOT EXISTS penstock_lease (number INTEGER PRIMARY KEY, lease TEXT NOT NULL)"
_EXISTS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
_TAIL = "SELECT position, entry FROM penstock_ledger ORDER BY position DESC LIMIT 1"
_AT = "SELECT position, entry FROM penstock_ledger WHERE position = ?"
_OWNER = "SELECT position, pipeline FROM penstock_ledger ORDER BY position DESC LIMIT 1"
_INSERT = "INSERT INTO penstock_ledger (position, pipeline, entry) VALUES (?, ?, ?)"
_PRUNE = "DELETE FROM penstock_ledger WHERE position < ?"
_LEASE = "SELECT number, lease FROM penstock_lease ORDER BY number DESC LIMIT 1"
_PUT_LEASE = "INSERT INTO penstock_lease (number, lease) VALUES (?, ?) ON CONFLICT DO NOTHING"
_FORGET_LEASE = "DELETE FROM penstock_lease WHERE number < ?"

# Matched by text: Python 3.10 does not expose SQLite's error codes.
_KINDS: tuple[tuple[str, type[PenstockError], str], ...] = (
    ("locked", Retryable, "Another program holds the file: try again, or find out which one does."),
    ("busy", Retryable, "Another program holds the file: try again, or find out which one does."),
    ("no such table: penstock_ledger_proof", Retryable, "Another driver starts at the same time: start just one."),
    ("not a database", LedgerMismatch, "Name another file, or restore this one from a backup."),
    ("malformed", LedgerMismatch, "Restore the file from a backup."),
    ("no UTF-8", LedgerMismatch, "Restore the file from a backup."),
)
_THEN = ", then start again: nothing that was decided is lost."
_OTHER = f"Mend the disk or the file{_THEN}"

_PROVED: set[int] = set()
"""The file systems, by the number of their device, whose locks held when this process asked."""


class SqliteLedger(BaseLedger, ServerConnection):
    """A `Ledger` in the SQLite file at `path`. Thread-safe: one connection, one call at a time.

    Waits `busy_timeout_s` for another writer of the file, then raises Retryable.
    """

    errors = sqlite3.Error

    def __init__(self, path: Path, *, pipeline: PipelineName, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path, self.place = path, str(path)
        self._pipeline = pipeline
        self._busy_timeout_s = busy_timeout_s
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._writable = False
        self._still: StillFile | None = None
        """The file's state when the connection was opened, if it reads the file alone, without locks."""

    @property
    def location(self) -> str:
        return self.place

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
        with self._lock, self.dropping_on_error():
            connection = self._open_for_writing()
            with self.translate_errors(Failed):
                connection.execute("BEGIN IMMEDIATE")
            with self.translate_errors(Failed), INSERT.around(error=_broken_disk, lost=_broken_disk):
                self._insert(connection, entry, data)  # I7: the position is the primary key
            if within is not None:
                within(connection)
            self._commit(connection)

    def prove(self) -> None:
        """Requires write-ahead mode, an undamaged table, locks that hold between processes, and one winner of a race.

        The locks and the race are the file system's: a process asks each of them once.
        """
        with self._lock, self.translate_errors(Failed):
            connection = self._open_for_writing()
            prove_undamaged(connection, self._path)
            file_system = self._path.stat().st_dev
            if file_system in _PROVED:
                return
            prove_locks(connection, self._path)
            prove_writers(connection, self._uri("rw"), location=self.location)
            _PROVED.add(file_system)

    def prune(self, *, below: Position) -> None:
        """Raises ValueError if the tail would be pruned: while it stays, a pruned position counts as taken."""
        with self._lock, self.dropping_on_error():
            connection = self._open_for_writing()
            require_tail_kept(self.tail(), below=below)
            with self.translate_errors(Failed), PRUNE.around(error=_broken_disk, lost=_broken_disk):
                connection.execute(_PRUNE, (below,))
            with self.translate_errors(Failed):
                collect_proofs(connection)

    def newest_lease(self) -> tuple[int, bytes] | None:
        row = self._row(_LEASE, table="penstock_lease")
        return None if row is None else (row[0], row[1].encode())

    def append_lease(self, number: int, data: bytes) -> bool:
        with self._lock, self.dropping_on_error(), self.translate_errors(Failed):
            connection = self._open_for_writing()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_CREATE_LEASE)
            created = connection.execute(_PUT_LEASE, (number, data.decode("ascii"))).rowcount == 1
            if created:
                connection.execute(_FORGET_LEASE, (number - 1,))
            connection.execute("COMMIT")
        return created

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self.drop()

    # --- reading and writing

    def _select(self, statement: str, *values: int) -> Entry | None:
        row = self._row(statement, *values)
        return None if row is None else self._decode(row[1].encode(), row[0])

    def _row(self, statement: str, *values: int, table: str = "penstock_ledger") -> tuple[int, str] | None:
        with self._lock:
            for _ in range(_LOOKS):
                connection = self._open_for_reading()
                if connection is None:
                    return None
                try:
                    with self.translate_errors(Failed):
                        row = _first_row(connection, statement, values, table=table)
                except PenstockError:
                    if self._still == self._still_file():
                        raise
                else:
                    if self._still is None or self._still == self._still_file():
                        return row
                self.drop()
            raise self._changing()

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
            translated = self._translate_error(error, Failed)
            raise OutcomeUnknown(
                f"Whether the newest entry was written is unknown: {translated.message}", remedy=translated.remedy
            ) from error

    # --- the connection

    def _translate_error(self, cause: sqlite3.Error, kind: type[Failed]) -> PenstockError:
        text = _without_content(str(cause))
        for part, meaning, remedy in _KINDS:
            if part in text:
                return meaning(f"The ledger {self._path} cannot be used: {text}.", remedy=remedy)
        seen = file_problem(self._path) or (FULL if "full" in text else None)
        if seen is None:
            return kind(f"The ledger {self._path} cannot be used: {text}.", remedy=_OTHER)
        return kind(f"The ledger {self._path} cannot be used: {seen.reason} ({text}).", remedy=f"{seen.advice}{_THEN}")

    def _open_for_writing(self) -> sqlite3.Connection:
        if self._connection is None or not self._writable:
            self.drop()
            self._create()
            self._connection = self._connect("rw")
            self._make_writable(self._connection)
            self._writable = True
        return self._connection

    def _open_for_reading(self) -> sqlite3.Connection | None:
        """Return None if there is no ledger. Where its directory cannot be written, SQLite is not let write the file, either."""
        if self._connection is None and self._exists():
            self._still = self._still_file()
            if self._still is not None:
                self._connection = self._connect("ro&immutable=1")
            else:
                self._connection = self._connect("rw" if is_writable(self._path) else "ro")
        return self._connection

    def _still_file(self) -> StillFile | None:
        with translate_os_errors(Failed, f"The ledger {self._path} cannot be looked at", then=_THEN):
            return still_file(self._path)

    def _changing(self) -> Retryable:
        return Retryable(
            f"The ledger {self._path} changed during {_LOOKS} looks: a driver begins or ends to write it, and here its directory "
            "cannot be written.",
            remedy="Look again.",
        )

    def _exists(self) -> bool:
        looking = translate_os_errors(Failed, f"The ledger {self._path} cannot be looked at", then=_THEN)
        with looking, suppress(FileNotFoundError):
            self._path.stat()  # `exists` is False, too, where a file stands in the place of a directory above
            return True
        return False

    def _create(self) -> None:
        """Create the file as private: SQLite gives its own files beside it the same permissions, and syncs the file's folder."""
        with translate_os_errors(
            Failed, f"The folder of the ledger {self._path} could not be created", then=", then start again."
        ):
            create_durably(self._path.parent, make_private_directory)
            if not self._path.exists():
                create_private(self._path)

    def _connect(self, mode: str) -> sqlite3.Connection:
        _require_not_emptied(self._path)
        with self.translate_errors(Failed):
            return sqlite3.connect(
                self._uri(mode), uri=True, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
            )

    def _uri(self, mode: str) -> str:
        return f"file:{quote(str(self._path))}?mode={mode}"

    def _make_writable(self, connection: sqlite3.Connection) -> None:
        with self.translate_errors(Failed):
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            connection.execute("PRAGMA synchronous=FULL")
            if not _has_table(connection, "penstock_ledger"):
                connection.execute(_CREATE)
        if mode != "wal":
            raise StoreIgnoresConditions(
                f"SQLite keeps {self._path} in journal mode {mode}, expected wal: the file system lacks shared memory.",
                remedy="Put the ledger on a local disk.",
            )

    def drop(self) -> None:
        """Roll back and close, so that only the file says what the connection did.

        Closing alone would leave the lock while a cursor of the connection lives, for example in an exception's traceback.
        """
        connection, self._connection, self._writable, self._still = self._connection, None, False, None
        if connection is not None:
            with suppress(sqlite3.Error):  # only the file counts, whatever the closing connection raises
                connection.rollback()
            with suppress(sqlite3.Error):
                connection.close()


def _without_content(text: str) -> str:
    """Return what SQLite said. Python quotes a whole entry that is no UTF-8, which is long, binary, and can hold rows."""
    return "an entry is damaged: it is no UTF-8" if text.startswith("Could not decode to UTF-8") else text


def _first_row(connection: sqlite3.Connection, statement: str, values: tuple[int, ...], *, table: str) -> tuple[int, str] | None:
    """Return the first row of a query on `table`, None if there is none or no such table."""
    if not _has_table(connection, table):
        return None
    row: tuple[int, str] | None = connection.execute(statement, values).fetchone()
    return row


def _has_table(connection: sqlite3.Connection, table: str) -> bool:
    return connection.execute(_EXISTS, (table,)).fetchone() is not None


def _broken_disk(point: str) -> Exception:
    return sqlite3.OperationalError(f"disk I/O error at {point}")


def _require_not_emptied(path: Path) -> None:
    """Raise LedgerMismatch for an empty file with a write-ahead log: SQLite fills the file before it begins a log.

    SQLite itself would find an empty database, or report that it is locked.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        size, logged = path.stat().st_size, log.stat().st_size
    except OSError:  # opening the file will report what is wrong with it
        return
    if size == 0 < logged:
        raise LedgerMismatch(
            f"The ledger {path} was emptied: it has 0 bytes, and {log.name} beside it has {logged}.",
            remedy=f"Remove {log.name} and {path.name}-shm, and restore {path.name} from a backup.",
        )
