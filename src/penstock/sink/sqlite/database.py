"""An SQLite file: one connection that commits durably, and translation of SQLite's errors into Penstock's."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from penstock.errors import Conflict, Failed, GuaranteeTooWeak, PenstockError, PublishFailed, Retryable
from penstock.sink.sqlite import statements as sql
from penstock.sink.table.file import DatabaseFile

_DURABLE_JOURNALS = frozenset({"wal", "delete", "truncate", "persist"})


class Database(DatabaseFile[sqlite3.Connection]):
    """A `DatabaseFile` of SQLite, whose connection is kept open between publications."""

    errors = sqlite3.Error
    refused = sqlite3.IntegrityError
    damaged = ("not a database", "malformed")
    full = "full"
    write_begins = "BEGIN IMMEDIATE"

    _opened: tuple[int, int] | None = None

    def create(self) -> None:
        with self.translate_errors(Failed):
            self._open("rwc").close()

    def writable(self, kind: type[Failed] = PublishFailed) -> sqlite3.Connection:
        """Return the open connection, made durable. Raises Retryable, `kind`, GuaranteeTooWeak.

        Raises `kind` if the file was replaced under the connection: nobody would see what is committed to the old file.
        """
        if self._connection is None:
            self.require_writable(kind)  # SQLite opens a file that it cannot write, and only to read
            with self.translate_errors(kind):
                self._connection = self._open("rw")
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
    def reader(self) -> Iterator[sqlite3.Connection]:
        with (
            self.translate_errors(Failed),
            closing(self._open("rw") if self.exists else sqlite3.connect(":memory:", isolation_level=None)) as connection,
        ):
            connection.execute(sql.READ_ONLY)
            connection.execute(sql.BEGIN_READ)
            yield connection

    def _translate_error(self, cause: sqlite3.Error, kind: type[Failed]) -> PenstockError | Conflict:
        if "locked" in str(cause) or "busy" in str(cause):
            message = f"The database {self.path} is locked by another writer: {cause}."
            return Retryable(message, remedy="Try again when it is done.")
        return super()._translate_error(cause, kind)

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


def disk_error(point: str) -> sqlite3.Error:
    """Return the error that SQLite would raise at a fault point if the disk failed."""
    return sqlite3.OperationalError(f"disk I/O error ({point})")
