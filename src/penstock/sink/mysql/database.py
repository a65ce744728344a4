"""The database: one connection that commits durably, and readers of one snapshot each."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pymysql

from penstock.errors import Conflict, Failed, GuaranteeTooWeak, PublishFailed, Refused, Retryable
from penstock.sink.mysql import statements as sql
from penstock.sink.mysql.address import address_of
from penstock.sink.mysql.connection import Connection
from penstock.sink.mysql.trouble import trouble

LOCK_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 60
"""A driver that stands still inside its transaction loses it, and with it the lock of the marker, after this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a server is. `loads`: whether it takes LOAD DATA LOCAL. `max_packet`: the longest statement, in bytes."""

    is_mariadb: bool
    loads: bool
    max_packet: int

    @property
    def max_value_bytes(self) -> int:
        """The longest value that a client can be sure to read again."""
        return self.max_packet

    @property
    def max_insert_bytes(self) -> int | None:
        """The longest statement with one row, None where rows do not go as statements."""
        return None if self.loads else self.max_packet

    @property
    def exact_collation(self) -> str:
        """The one that takes no two texts for equal: others ignore case, or blanks at the end."""
        return "utf8mb4_nopad_bin" if self.is_mariadb else "utf8mb4_0900_bin"


class Database:
    """The database at `url`, with one connection kept open between publications. Not thread-safe by itself.

    A connection on which anything failed is dropped: the marker, read by a new one, says what happened.
    """

    def __init__(self, url: str, *, application: str, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._address = address_of(url)
        self._application, self._lock_timeout_s = application, max(1, math.ceil(lock_timeout_s))
        self.place = self._address.place
        self._connection: Connection | None = None
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        """What the server of the connection opened last is."""
        assert self._server is not None, "no connection was opened"
        return self._server

    def writable(self, kind: type[Failed] = PublishFailed) -> Connection:
        """The open connection, or a new one to a server that keeps what it commits. Raises Retryable, `kind`, Refused."""
        if self._connection is not None and not self._connection.is_alive():
            self.drop()
        if self._connection is None:
            with self.told(kind):
                self._connection, variables = self._open()
                require_durable(variables, self.place)
                waits = {"lock_timeout": self._lock_timeout_s, "idle_timeout": IDLE_TIMEOUT_S}
                self._connection.execute(sql.READ_COMMITTED)
                self._connection.execute(sql.WAITS, waits)
        return self._connection

    def begin(self, connection: Connection) -> None:
        """Open a transaction."""
        connection.execute(sql.BEGIN)

    def drop(self) -> None:
        """Close, which rolls back what is open."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """A connection of its own that cannot write and sees one snapshot."""
        with self.told(Failed):
            connection, _ = self._open()
            try:
                connection.execute(sql.REPEATABLE_READ)
                connection.execute(sql.PATIENT)
                connection.execute(sql.BEGIN_READ)
                yield connection
            finally:
                connection.close()

    @contextmanager
    def told(self, kind: type[Failed] = PublishFailed, *, runs_again: bool = False) -> Iterator[None]:
        """Raise MySQL's errors as Retryable or as `kind`; those of a caller that runs it again at once as Conflict."""
        try:
            yield
        except pymysql.err.Error as cause:
            told = trouble(cause, self.place, kind)
            if isinstance(told, Conflict) and not runs_again:
                raise Retryable(f"{self.place} rolled back: {told}.", remedy="Try again.") from cause
            raise told from cause

    def _open(self) -> tuple[Connection, Mapping[str, str]]:
        try:
            connection = Connection(self._address, application=self._application)
        except RuntimeError as cause:  # PyMySQL's word for a way to log in that needs another package
            raise Failed(f"{self.place} cannot be logged in to: {cause}.", remedy="Install that package.") from cause
        connection.execute(sql.SESSION)
        variables = dict(connection.execute(sql.VARIABLES).fetchall())
        self._server = server_of(variables)
        if self._server.is_mariadb:
            connection.execute(sql.NO_STATEMENT_TIMEOUT)
        return connection, variables


def server_of(variables: Mapping[str, str]) -> Server:
    """What the server's variables say."""
    return Server(
        is_mariadb="mariadb" in variables["version"].lower(),
        loads=variables.get("local_infile") == "ON",
        max_packet=int(variables["max_allowed_packet"]),
    )


def require_durable(variables: Mapping[str, str], place: str) -> None:
    """Raise Refused for a server that cannot be written, or that could lose what it acknowledged."""
    locked = [name for name in ("read_only", "innodb_read_only") if variables.get(name, "OFF") != "OFF"]
    if locked:
        raise Refused(
            f"{place} has {locked[0]} = {variables[locked[0]]}, as replicas have, and nothing can be written to it.",
            remedy="Name the primary server in `url`.",
        )
    _require_variable(variables, place, "innodb_flush_log_at_trx_commit", ("1", "3"), "a crash could lose what it committed")
    if variables.get("log_bin") != "ON":
        return
    _require_variable(variables, place, "sync_binlog", ("1",), "a crash could lose what it committed")
    if variables.get("binlog_format") == "STATEMENT":
        raise Refused(
            f"{place} has binlog_format = STATEMENT, with which it refuses transactions that read what is committed.",
            remedy="Set binlog_format = ROW or MIXED.",
        )


def _require_variable(variables: Mapping[str, str], place: str, name: str, good: tuple[str, ...], risk: str) -> None:
    found = variables.get(name, good[0])
    if found not in good:
        raise GuaranteeTooWeak(f"{place} runs with {name} = {found}, so {risk}.", remedy=f"SET GLOBAL {name} = {good[0]}.")
