"""A MySQL or MariaDB database: one connection that commits durably, and readers of one snapshot each."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from penstock.errors import Failed, PublishFailed, Retryable
from penstock.sql.mysql import statements as sql
from penstock.sql.mysql.connection import Connection, address_of
from penstock.sql.mysql.errors import reason_of, translate_error
from penstock.sql.mysql.server import require_durable, server_of
from penstock.sql.session import LOCK_TIMEOUT_S, Sessions, closed_on_error

IDLE_TIMEOUT_S = 60
"""Seconds after which a driver that stalls inside its transaction loses the transaction and its locks."""


class Database(Sessions[Connection]):
    """The database at `url`, with one connection kept open between transactions. Not thread-safe by itself."""

    _error_at = staticmethod(translate_error)
    _reason = staticmethod(reason_of)

    def __init__(self, url: str, *, application: str, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._url, self._address, self._application = url, address_of(url), application
        super().__init__(place=self._address.place, errors=pymysql.err.Error, lock_timeout_s=max(1, math.ceil(lock_timeout_s)))
        self.home = f"mysql:{self.place} as {self._address.user}"

    def writable(self, kind: type[Failed] = PublishFailed) -> Connection:
        if self._session is not None and not self._session.is_alive():
            self.drop()
        return super().writable(kind)

    def begin(self, connection: Connection) -> None:
        connection.execute(sql.BEGIN)

    def commit(self, connection: Connection, kind: type[Failed] = PublishFailed) -> None:
        """Commit; use it within `unknown_if_cut`. Raises `kind` if the transaction has ended by itself."""
        if not connection.in_transaction:
            raise kind(
                f"The transaction in {self.place} ended before its COMMIT.",
                remedy="Look for a proxy or trigger that commits, then compare: penstock verify.",
            )
        connection.execute(sql.COMMIT)

    def _begin_reading(self, session: Connection) -> None:
        session.execute(sql.REPEATABLE_READ)
        session.execute(sql.PATIENT)
        session.execute(sql.BEGIN_READ)

    def _require_durable(self, session: Connection) -> None:
        require_durable(session.variables, self.place)

    def _open_publishing(self) -> Connection:
        """Open a session in which each statement sees what was committed before it."""
        with closed_on_error(self._open()) as connection:
            connection.execute(sql.READ_COMMITTED)
            connection.execute(sql.WAITS, {"lock_timeout": self._lock_timeout_s, "idle_timeout": IDLE_TIMEOUT_S})
        return connection

    def _open(self) -> Connection:
        try:
            connection = Connection(self._address, application=self._application)
        except RuntimeError as cause:  # PyMySQL raises it for a login method that needs another package
            raise Failed(f"{self.place} cannot be logged in to: {cause}.", remedy="Install that package.") from cause
        with closed_on_error(connection):
            connection.execute(sql.SESSION)
            variables = dict(connection.execute(sql.VARIABLES).fetchall())
            variables |= dict(connection.execute(sql.REDO_LOG).fetchall())
            connection.variables, connection.server = variables, server_of(variables)
            for name, statement in sql.NO_STATEMENT_TIMEOUT.items():
                if name in variables:
                    connection.execute(statement)
        return connection


@contextmanager
def one_at_a_time(connection: Connection) -> Iterator[None]:
    """Lock out other runs that create tables in this database, which no transaction covers. Raises Retryable."""
    [taken] = connection.execute(sql.TAKE_LOCK, (LOCK_TIMEOUT_S,)).fetchone()
    if taken != 1:
        raise Retryable("Another run is getting its tables ready in this database.", remedy="Try again.")
    yield
    connection.execute(sql.RELEASE_LOCK)  # after an error, dropping the connection releases the lock
