"""The DuckDB file: open for one publication at a time, so that other programs can read it in between; what its errors mean."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import RLock

import duckdb
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from penstock.errors import Conflict, Failed, PenstockError, PublishFailed, Retryable, Usage
from penstock.sink.duckdb import statements as sql
from penstock.sink.table.file import BUSY_TIMEOUT_S, DatabaseFile

_LOOKS_EVERY_S = 0.1
_OPEN_ELSEWHERE = ("Could not set lock on file", "Unique file handle conflict")
_CONFLICT = ("conflict", "constraint", "other transaction", "different transaction")
_QUOTED = re.compile(r'"[^"]*"')
"""Names and values, which may contain any words."""
_VALUES = (re.compile(r'(\bkey) ".*"', re.DOTALL | re.IGNORECASE), re.compile(r"(\bconvert string) '.*'", re.DOTALL))
"""Values of rows, which no message shows; each with the words before it."""


@cache
def lock_of(path: str) -> RLock:  # noqa: ARG001 - what the cache goes by
    """Return this process's lock of the file, to be held while the file is written to, opened or closed.

    In DuckDB a second writer fails instead of waiting, and so does an opening of the file while another thread closes it.
    """
    return RLock()


class Database(DatabaseFile["duckdb.DuckDBPyConnection"]):
    """A `DatabaseFile` of DuckDB, which commits durably.

    DuckDB lets one process in at a time: while another one has the file open, this one waits up to `busy_timeout_s`.
    """

    errors = duckdb.Error
    refused = duckdb.ConstraintException
    damaged = ("not a valid DuckDB database file", "Corrupt", "checksum")
    full = "No space left"
    write_begins = sql.BEGIN

    def __init__(self, path: "str | os.PathLike[str]", *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        super().__init__(path, busy_timeout_s=busy_timeout_s)
        self.lock = lock_of(self.path)
        if "?" in str(Path(self.path).parent):
            raise Usage(
                f"The folder of {self.path} has a ? in its name, at which DuckDB cuts the path of its log.",
                remedy="Name a file in a folder without one.",
            )
        self._waiting = Retrying(
            retry=retry_if_exception(is_open_elsewhere),
            stop=stop_after_delay(busy_timeout_s),
            wait=wait_random(0, _LOOKS_EVERY_S),
            reraise=True,
        )

    def create(self) -> None:
        with self.translate_errors(Failed):
            duckdb.connect(self.path).close()

    def writable(self, kind: type[Failed] = PublishFailed) -> "duckdb.DuckDBPyConnection":
        if self._connection is None:
            if not self.exists:
                raise kind(
                    f"The database {self.path} is gone.",
                    remedy="Put it back and start again: what was decided is published then.",
                )
            with self.translate_errors(kind):
                self._connection = _in_utc(self._waiting(duckdb.connect, self.path))
        return self._connection

    def drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(duckdb.Error):  # the file shows what happened, not the answer to a close
                connection.close()

    @contextmanager
    def reader(self) -> Iterator["duckdb.DuckDBPyConnection"]:
        with self.translate_errors(Failed):
            with lock_of(self.path):
                connection = self._opened_to_read() if self.exists else duckdb.connect()
            try:
                _in_utc(connection).execute(sql.BEGIN)
                yield connection
            finally:
                with lock_of(self.path):
                    connection.close()

    def _opened_to_read(self) -> "duckdb.DuckDBPyConnection":
        try:
            return self._waiting(duckdb.connect, self.path, read_only=True)
        except duckdb.ConnectionException:  # open for writing in this process, and DuckDB wants one mode for all
            return duckdb.connect(self.path)

    def _translate_error(self, cause: "duckdb.Error", kind: type[Failed]) -> PenstockError | Conflict:
        if is_conflict(cause):
            return Conflict(self._reason(cause))
        if is_open_elsewhere(cause) or isinstance(cause, duckdb.ConnectionException):
            return Retryable(
                f"The database {self.path} is open elsewhere: {self._reason(cause)}.",
                remedy="Close it there: DuckDB lets one process in at a time, and one way of opening in a process. "
                "Then try again.",
            )
        return super()._translate_error(cause, kind)

    def _reason(self, cause: "duckdb.Error") -> str:
        """Return the first line of DuckDB's message, without values of rows."""
        reason = str(cause)
        for values in _VALUES:
            reason = values.sub(r"\1", reason)
        return reason.partition("\n")[0].rstrip(".")


def _in_utc(connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyConnection":
    connection.execute(sql.IN_UTC)
    return connection


def is_open_elsewhere(cause: BaseException) -> bool:
    """Return whether another process, or another thread at this very moment, keeps the file from being opened."""
    return isinstance(cause, duckdb.Error) and any(sign in str(cause) for sign in _OPEN_ELSEWHERE)


def is_conflict(cause: BaseException) -> bool:
    """Return whether a transaction lost to another one. DuckDB raises the same class where a COMMIT could not be written."""
    reason = _QUOTED.sub("", str(cause)).lower()
    return isinstance(cause, duckdb.TransactionException) and any(sign in reason for sign in _CONFLICT)


def disk_error(point: str) -> "duckdb.Error":
    """Return the error that DuckDB would raise at a fault point if the disk failed."""
    return duckdb.IOException(f"IO Error: Could not write to file ({point})")
