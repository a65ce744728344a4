"""An SQLite file: one connection that commits durably, and translation of SQLite's errors into Penstock's."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import Failed, GuaranteeTooWeak, PenstockError, PublishFailed, Retryable
from penstock.sink.sqlite import statements as sql
from penstock.support.connection import ReusedConnection
from penstock.support.filesystem_errors import FULL, PathProblem, file_problem

BUSY_TIMEOUT_S = 10.0
_DAMAGED = ("not a database", "malformed")
_DURABLE_JOURNALS = frozenset({"wal", "delete", "truncate", "persist"})


class Database(ReusedConnection):
    """The file at `path`, with one connection kept open between publications. Not thread-safe by itself."""

    def __init__(self, path: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.path = os.path.realpath(path)
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None

    @property
    def home(self) -> str:
        """The name of this database, which the coordinator compares with the ledger's."""
        return f"sqlite:{self.path}"

    def writable(self, *, create: bool = False, kind: type[Failed] = PublishFailed) -> sqlite3.Connection:
        """Return the open connection, made durable; `create` makes a missing file. Raises Retryable, `kind`, GuaranteeTooWeak.

        Raises `kind` if the file was replaced under the connection: nobody would see what is committed to the old file.
        """
        if self._connection is None:
            with self.translate_errors(kind):
                self._connection = self._open("rwc" if create else "rw")
                require_durable(self._connection, self.path)
            self._opened = self._file()
        if self._file() != self._opened:
            raise kind(
                f"The database {self.path} was replaced or removed while this run was writing to it.",
                remedy="Stop the pipeline before the file is exchanged. Put the newest one back and start again.",
            )
        return self._connection

    def _file(self) -> tuple[int, int] | None:
        """Return which file has the path now, since a connection goes on writing to the file that it opened."""
        try:
            found = Path(self.path).stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def drop(self) -> None:
        """Roll back and close. A connection that is only closed keeps its lock while one of its cursors lives."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(sqlite3.Error):  # the file shows what happened, not the answer to a close
                connection.rollback()
            with suppress(sqlite3.Error):
                connection.close()

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Cursor]:
        """Yield a cursor on one snapshot of an existing file, through a connection of its own that cannot write."""
        with self.translate_errors(Failed):
            connection = self._open("rw")
            try:
                connection.execute(sql.READ_ONLY)
                connection.execute(sql.BEGIN_READ)
                yield connection.cursor()
            finally:
                connection.close()

    @contextmanager
    def translate_errors(self, kind: type[Failed] = PublishFailed) -> Iterator[None]:
        """Raise SQLite's errors as Retryable or as `kind`."""
        try:
            yield
        except sqlite3.Error as cause:
            raise translate_error(cause, self.path, kind) from cause

    def _open(self, mode: str) -> sqlite3.Connection:
        uri = f"{Path(self.path).as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=self._busy_timeout_s, check_same_thread=False)


def require_durable(connection: sqlite3.Connection, path: str) -> None:
    """Make every COMMIT durable. Raises GuaranteeTooWeak if the file cannot have a journal."""
    journal = str(connection.execute(sql.WRITE_AHEAD).fetchone()[0]).lower()
    if journal not in _DURABLE_JOURNALS:
        raise GuaranteeTooWeak(
            f"The database {path} keeps its journal in mode {journal!r}, so a crash could leave half a transaction.",
            remedy="Use a database file on a local disk.",
        )
    connection.execute(sql.SYNC_EVERY_COMMIT)


def translate_error(cause: sqlite3.Error, path: str, kind: type[Failed]) -> PenstockError:
    """Return Penstock's error for an error of SQLite before COMMIT, when nothing was written."""
    if "locked" in str(cause) or "busy" in str(cause):
        return Retryable(f"The database {path} is locked by another writer: {cause}.", remedy="Try again when it is done.")
    if isinstance(cause, sqlite3.IntegrityError):
        return kind(
            f"The table in {path} refused a row: {cause}.",
            remedy="Drop the constraint or correct the table's rows, then start again: what was decided is published then.",
        )
    if any(sign in str(cause) for sign in _DAMAGED):
        return kind(
            f"The file {path} cannot be used as a database: {cause}.",
            remedy="Restore it from a backup and start again: what was decided is published then.",
        )
    seen = diagnose_file(cause, path)
    return kind(
        f"The database {path} cannot be used: {seen.reason}.",
        remedy=f"{seen.advice} and start again: what was decided is published then.",
    )


def diagnose_file(cause: sqlite3.Error, path: str) -> PathProblem:
    """Return the problem that `cause` and a look at the file show together."""
    seen = file_problem(path) or (FULL if "full" in str(cause) else None)
    if seen is None:
        return PathProblem(reason=str(cause), advice="Mend that")
    return PathProblem(reason=f"{seen.reason} ({cause})", advice=seen.advice)


def disk_error(point: str) -> sqlite3.Error:
    """Return the error that SQLite would raise at a fault point if the disk failed."""
    return sqlite3.OperationalError(f"disk I/O error ({point})")
