"""The database: one connection that commits durably, and readers of one snapshot each."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format

from penstock.errors import Failed, GuaranteeTooWeak, PublishFailed, Refused, Retryable, Usage
from penstock.sink.postgres import statements as sql
from penstock.sink.postgres.trouble import trouble
from penstock.sink.table.conflict import Conflict
from penstock.sink.table.target import NotStoredError

LOCK_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 60.0
"""A driver that stands still inside its transaction loses it, and with it the lock of the marker, after this time."""

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_WAITS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""How long a server that is gone is waited for, where the URL does not say it."""


class Database:
    """The database at `url`, with one connection kept open between publications. Not thread-safe by itself.

    A connection on which anything failed is dropped: the marker, read by a new one, says what happened.
    """

    def __init__(self, url: str, *, application: str, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._url = url
        try:
            parts = conninfo_to_dict(url)
        except psycopg.Error:
            raise Usage(
                "`url` is no URL of a PostgreSQL database.", remedy="Write postgresql://user:password@host:5432/database."
            ) from None
        host, port = parts.get("host") or parts.get("hostaddr") or "localhost", parts.get("port") or "5432"
        self.place = f"{host}:{port}/{parts.get('dbname') or parts.get('user') or ''}"
        self._settings = {
            **{name: value for name, value in _WAITS.items() if name not in parts},
            "application_name": parts.get("application_name") or application,
            "client_encoding": "utf8",
        }
        self._lock_timeout_s = lock_timeout_s
        self._connection: Connection | None = None

    def writable(self, kind: type[Failed] = PublishFailed) -> Connection:
        """The open connection, or a new one to a server that keeps what it commits. Raises Retryable, `kind`, Refused."""
        if self._connection is None:
            with self.told(kind):
                self._connection = self._open()
                require_durable(self._connection, self.place)
        return self._connection

    def begin(self, connection: Connection) -> None:
        """Open a transaction whose waits are bounded."""
        connection.execute(sql.BEGIN)
        bounds = {"lock_timeout": f"{round(self._lock_timeout_s * 1000)}ms", "idle_timeout": f"{round(IDLE_TIMEOUT_S * 1000)}ms"}
        connection.execute(sql.GUARD, bounds)

    def drop(self) -> None:
        """Close, which rolls back what is open."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(psycopg.Error):  # the marker decides what happened, not the answer to a close
                connection.close()

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """A connection of its own that cannot write and sees one snapshot."""
        with self.told(Failed):
            connection = self._open()
            try:
                connection.execute(sql.BEGIN_READ)
                yield connection
            finally:
                connection.close()

    @contextmanager
    def told(self, kind: type[Failed] = PublishFailed, *, runs_again: bool = False) -> Iterator[None]:
        """Raise PostgreSQL's errors as Retryable or as `kind`; those of a caller that runs it again at once as Conflict."""
        try:
            yield
        except psycopg.Error as cause:
            told = trouble(cause, self.place, kind)
            if isinstance(told, Conflict) and not runs_again:
                raise Retryable(f"{self.place} rolled back: {told}.", remedy="Try again.") from cause
            raise told from cause

    def _open(self) -> Connection:
        # Without prepared statements: a staging table is dropped and made again under the same name.
        connection = psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **self._settings)  # type: ignore[arg-type]
        for name, loader in _LOADERS.items():
            connection.adapters.register_loader(name, loader)
        return connection


def require_durable(connection: Connection, place: str) -> None:
    """Raise Refused for a server that cannot be written, or that would lose or change what it acknowledged."""
    row = connection.execute(sql.SERVER).fetchone()
    assert row is not None
    standby, fsync, encoding = row
    if standby:
        raise Refused(f"{place} is a standby, which nothing can be written to.", remedy="Name the primary server in `url`.")
    if fsync != "on":
        raise GuaranteeTooWeak(
            f"{place} runs with fsync = {fsync}, so a crash could lose what it committed.",
            remedy="Set fsync = on in postgresql.conf.",
        )
    if encoding != sql.ENCODING:
        raise Refused(
            f"The database {place} has the encoding {encoding}, which cannot hold every text, expected {sql.ENCODING}.",
            remedy=f"Create the database with ENCODING '{sql.ENCODING}'.",
        )


# --- values as PostgreSQL sends them, without Python's narrower dates in between


class _Integer(Loader):
    """A date in days, a time or timestamp in microseconds."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return int.from_bytes(data, "big", signed=True)


class _Interval(Loader):
    """An interval in microseconds. Days and months have no length of their own, and Spark's intervals have neither."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        if any(bytes(data[8:16])):
            raise NotStoredError("expected an interval of hours and less, found days or months in it")
        return int.from_bytes(data[:8], "big", signed=True)


_LOADERS: dict[str, type[Loader]] = {
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), _Integer),
    "interval": _Interval,
}
