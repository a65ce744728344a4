"""The DuckDB file: open for one publication at a time, so that other programs can read it in between."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import RLock

import duckdb
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from penstock.errors import Conflict, Failed, PublishFailed, Retryable, Usage
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.errors import is_conflict, is_open_elsewhere, translate_error
from penstock.support.connection import ReusedConnection

BUSY_TIMEOUT_S = 10.0
_LOOKS_EVERY_S = 0.1


@cache
def lock_of(path: str) -> RLock:  # noqa: ARG001 - what the cache goes by
    """Return this process's lock of the file, to be held while the file is written to, opened or closed.

    DuckDB lets a second writer fail instead of wait, and so it does an opening that meets a closing.
    """
    return RLock()


class Database(ReusedConnection):
    """The file at `path`, which DuckDB commits durably. Not thread-safe by itself.

    DuckDB lets one process in at a time: while another one has the file open, this one waits up to `busy_timeout_s`.
    """

    def __init__(self, path: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.path = self.place = os.path.realpath(path)
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
        self._connection: duckdb.DuckDBPyConnection | None = None

    @property
    def exists(self) -> bool:
        return Path(self.path).exists()

    def create(self) -> None:
        """Create the file if it is missing. Raise Failed."""
        if not self.exists:
            with self.translate_errors(Failed):
                duckdb.connect(self.path).close()

    def writable(self, kind: type[Failed] = PublishFailed) -> "duckdb.DuckDBPyConnection":
        """Return the open connection, or a new one to a file that exists. Raise Retryable, `kind`."""
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
        """Open a separate connection that reads one snapshot; an empty database if there is no file."""
        with self.translate_errors(Failed):
            with lock_of(self.path):
                connection = self._opened_to_read() if self.exists else duckdb.connect()
            try:
                _in_utc(connection).execute(sql.BEGIN)
                yield connection
            finally:
                with lock_of(self.path):
                    connection.close()

    @contextmanager
    def translate_errors(self, kind: type[Failed] = PublishFailed, *, runs_again: bool = False) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as cause:
            if not is_conflict(cause):
                raise translate_error(cause, self.path, kind) from cause
            if runs_again:
                raise Conflict(str(cause)) from cause
            raise Retryable(f"Another transaction was in the way in {self.path}: {cause}.", remedy="Try again.") from cause

    def _opened_to_read(self) -> "duckdb.DuckDBPyConnection":
        try:
            return self._waiting(duckdb.connect, self.path, read_only=True)
        except duckdb.ConnectionException:  # open for writing in this process, and DuckDB wants one mode for all
            return duckdb.connect(self.path)


def _in_utc(connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyConnection":
    connection.execute(sql.IN_UTC)
    return connection
