"""A MySQL or MariaDB database: one connection that commits durably, and readers of one snapshot each."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pymysql

from penstock.errors import Conflict, Failed, OutcomeUnknown, PenstockError, PublishFailed, Retryable
from penstock.sql.mysql import statements as sql
from penstock.sql.mysql.address import address_of
from penstock.sql.mysql.connection import Connection
from penstock.sql.mysql.errors import reason_of, translate_error
from penstock.sql.mysql.server import require_durable, server_of
from penstock.support.connection import ServerConnection

LOCK_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 60
"""Seconds after which a driver that stalls inside its transaction loses the transaction and its locks."""


class Database(ServerConnection):
    """The database at `url`, with one connection kept open between transactions. Not thread-safe by itself."""

    errors = pymysql.err.Error

    def __init__(self, url: str, *, application: str, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._url, self._address = url, address_of(url)
        self._application, self._lock_timeout_s = application, max(1, math.ceil(lock_timeout_s))
        self.place = self._address.place
        self.home = f"mysql:{self.place} as {self._address.user}"
        self._connection: Connection | None = None
        self._variables: Mapping[str, str] = {}
        self._durable = False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def another(self) -> "Database":
        return Database(self._url, application=self._application, lock_timeout_s=self._lock_timeout_s)

    def connected(self, kind: type[Failed] = PublishFailed) -> Connection:
        """Return the open connection or a new one. Each statement sees what was committed before it. Raises Retryable, `kind`."""
        if self._connection is None:
            with self.translate_errors(kind):
                self._connection, self._variables = self._open()
                waits = {"lock_timeout": self._lock_timeout_s, "idle_timeout": IDLE_TIMEOUT_S}
                self._connection.execute(sql.READ_COMMITTED)
                self._connection.execute(sql.WAITS, waits)
        return self._connection

    def writable(self, kind: type[Failed] = PublishFailed) -> Connection:
        """Return a connection that still answers, to a server that keeps what it commits. Raises Retryable, `kind`, Refused."""
        if self._connection is not None and not self._connection.is_alive():
            self.drop()
        connection = self.connected(kind)
        if not self._durable:
            require_durable(self._variables, self.place)
            self._durable = True
        return connection

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

    @contextmanager
    def unknown_if_cut(self, what: str, *, read: str) -> Iterator[None]:
        """Raise OutcomeUnknown if the COMMIT of `what` fails. After it, `read` on a new connection shows whether it happened."""
        try:
            yield
        except pymysql.err.Error as cause:
            raise OutcomeUnknown(
                f"The COMMIT of {what} in {self.place} gave no answer: {reason_of(cause)}.",
                remedy=f"Try again: {read} in the database says whether it happened.",
            ) from cause

    def drop(self) -> None:
        if self._connection is not None:
            connection, self._connection, self._durable = self._connection, None, False
            connection.close()

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """Yield a connection of its own that cannot write and sees one snapshot."""
        with self.translate_errors(Failed):
            connection, _ = self._open()
            try:
                connection.execute(sql.REPEATABLE_READ)
                connection.execute(sql.PATIENT)
                connection.execute(sql.BEGIN_READ)
                yield connection
            finally:
                connection.close()

    def _translate_error(self, cause: pymysql.err.Error, kind: type[Failed]) -> PenstockError | Conflict:
        return translate_error(cause, self.place, kind)

    def _open(self) -> tuple[Connection, Mapping[str, str]]:
        try:
            connection = Connection(self._address, application=self._application)
        except RuntimeError as cause:  # PyMySQL raises it for a login method that needs another package
            raise Failed(f"{self.place} cannot be logged in to: {cause}.", remedy="Install that package.") from cause
        connection.execute(sql.SESSION)
        variables = dict(connection.execute(sql.VARIABLES).fetchall())
        variables |= dict(connection.execute(sql.REDO_LOG).fetchall())
        connection.server = server_of(variables)
        for name, statement in sql.NO_STATEMENT_TIMEOUT.items():
            if name in variables:
                connection.execute(statement)
        return connection, variables


@contextmanager
def one_at_a_time(connection: Connection) -> Iterator[None]:
    """Lock out other runs that create tables in this database, which no transaction covers. Raises Retryable."""
    [taken] = connection.execute(sql.TAKE_LOCK, (LOCK_TIMEOUT_S,)).fetchone()
    if taken != 1:
        raise Retryable("Another run is getting its tables ready in this database.", remedy="Try again.")
    yield
    connection.execute(sql.RELEASE_LOCK)  # after an error, dropping the connection releases the lock
