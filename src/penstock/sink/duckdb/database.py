"""The database file: open for one publication at a time, so that other programs may read it in between."""

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
    """The lock of that file in this process, held while it is written to, opened or closed.

    DuckDB lets a second writer fail instead of wait, and so an opening that meets a closing.
    """
    return RLock()


class Database(ReusedConnection):
    """The file at `path`. DuckDB commits durably, and lets one process in at a time: another is waited for `busy_timeout_s` long.

    Not thread-safe by itself.
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
        """Whether the file is there."""
        return Path(self.path).exists()

    def create(self) -> None:
        """Make the file if it is missing. Raises Failed."""
        if not self.exists:
            with self.translate_errors(Failed):
                duckdb.connect(self.path).close()

    def writable(self, kind: type[Failed] = PublishFailed) -> "duckdb.DuckDBPyConnection":
        """The open connection, or a new one to the file that is there. Raises Retryable, `kind`."""
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
        """Close, which rolls back what is open."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(duckdb.Error):  # the file decides what happened, not the answer to a close
                connection.close()

    @contextmanager
    def reader(self) -> Iterator["duckdb.DuckDBPyConnection"]:
        """A connection of its own to one snapshot, which writes nothing; to an empty database where there is no file."""
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
        """Raise DuckDB's errors as Retryable or as `kind`; a lost race as Conflict for a caller that runs it again at once."""
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
        except duckdb.ConnectionException:  # this process has it open for writing, and DuckDB wants all alike
            return duckdb.connect(self.path)


def _in_utc(connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyConnection":
    connection.execute(sql.IN_UTC)
    return connection
