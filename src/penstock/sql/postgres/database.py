"""A PostgreSQL database: one connection that commits durably, and readers of one snapshot each."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from psycopg.sql import Literal

from penstock.errors import (
    Failed,
    GuaranteeTooWeak,
    PublishFailed,
    Refused,
    Retryable,
    Usage,
)
from penstock.sql.postgres import statements as sql
from penstock.sql.postgres.errors import reason_of, translate_error
from penstock.sql.session import LOCK_TIMEOUT_S, Sessions
from penstock.sql.url import ESCAPES, unescaped

IDLE_TIMEOUT_S = 60.0
"""Seconds after which a driver that stalls inside its transaction loses the transaction and its locks."""

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_WAITS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Bounds on the wait for a server that is gone, unless the URL sets them."""
_NAMING = ("service", "host", "hostaddr", "port", "dbname", "user", "options")
"""The parts of a URL that determine database, role and session settings."""


class Database(Sessions[Connection]):
    """The database at `url`, with one connection kept open between transactions. Not thread-safe by itself."""

    _error_at = staticmethod(translate_error)
    _reason = staticmethod(reason_of)

    def __init__(self, url: str, *, application: str, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._url = url
        try:
            parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
        except psycopg.Error:
            raise _no_url() from None
        _require_plain(url, parts)
        host, port = parts.get("host") or parts.get("hostaddr") or "localhost", parts.get("port") or "5432"
        place = f"{host}:{port}/{parts.get('dbname') or parts.get('user') or ''}"
        super().__init__(place=place, errors=psycopg.Error, lock_timeout_s=lock_timeout_s)
        self.home = home_of(parts)
        self._settings = {
            **{name: value for name, value in _WAITS.items() if name not in parts},
            "application_name": parts.get("application_name") or application,
            "client_encoding": "utf8",
        }
        if "," in host:  # several servers: a standby may lack the newest commits
            self._settings["target_session_attrs"] = parts.get("target_session_attrs") or "primary"

    def begin(self, connection: Connection) -> None:
        lock_timeout, idle_timeout = (Literal(f"{round(each * 1000)}ms") for each in (self._lock_timeout_s, IDLE_TIMEOUT_S))
        connection.execute(sql.BEGIN.format(lock_timeout=lock_timeout, idle_timeout=idle_timeout))

    def commit(self, connection: Connection) -> None:
        """Commit; use it within `unknown_if_cut`. Raises Retryable if the server rolled back."""
        status = connection.execute(sql.COMMIT).statusmessage
        if status != "COMMIT":
            raise Retryable(f"{self.place} answered COMMIT with {status}.", remedy="Try again: nothing was committed.")

    @contextmanager
    def unknown_if_cut(self, what: str, *, read: str, kind: type[Failed] = PublishFailed) -> Iterator[None]:
        """Raise `kind` if the server refused the COMMIT of `what`, OutcomeUnknown if it gave no answer."""
        with super().unknown_if_cut(what, read=read):
            try:
                yield
            except psycopg.IntegrityError as cause:  # a deferred constraint: the server did answer
                raise kind(
                    f"{self.place} refused to commit {what}: {reason_of(cause)}.",
                    remedy="Correct the table's rows or its constraint and start again: what was decided is published then.",
                ) from cause

    def drop(self) -> None:
        with suppress(psycopg.Error):  # the database shows what happened, not the answer to a close
            super().drop()

    def _begin_reading(self, session: Connection) -> None:
        session.execute(sql.BEGIN_READ)

    def _require_durable(self, session: Connection) -> None:
        require_durable(session, self.place)

    def _open(self) -> Connection:
        # No prepared statements: a staging table is dropped and created again under the same name.
        return psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **self._settings)  # type: ignore[arg-type]


def _no_url() -> Usage:
    return Usage(
        "`url` is no URL of a PostgreSQL database.", remedy=f"Write postgresql://user:password@host:5432/database. {ESCAPES}"
    )


def _require_plain(url: str, parts: Mapping[str, str]) -> None:
    """Raise Usage if libpq took a part of the password for host, port or database: to libpq the first `@` ends the password."""
    before, _, path = url.partition("://")[2].partition("?")[0].partition("/")
    if before.count("@") > 1 or "@" in path or any("@" in parts.get(name, "") for name in ("host", "hostaddr", "port")):
        raise unescaped()
    if not all(port.isdecimal() or not port for port in parts.get("port", "").split(",")):
        raise unescaped()


def home_of(parts: dict[str, str]) -> str:
    """Return a name for a URL's database, role and session settings. If two URLs have one name, one transaction serves both.

    It is made of the URL and of libpq's defaults. The same server under another host name counts as another one, which costs a
    transaction and no guarantee. A server's own identifier would not distinguish a promoted standby from its primary.
    """
    usual = {option.keyword.decode(): option.val.decode() for option in Conninfo.get_defaults() if option.val is not None}
    return "postgres:" + " ".join(f"{name}={parts.get(name, usual.get(name, ''))!r}" for name in _NAMING)


def require_durable(connection: Connection, place: str) -> None:
    """Raise Refused for a server that cannot be written, or that would lose or change what it acknowledged."""
    row = connection.execute(sql.SERVER).fetchone()
    assert row is not None
    standby, fsync, encoding, read_only = row
    if standby:
        raise Refused(f"{place} is a standby, which nothing can be written to.", remedy="Name the primary server in `url`.")
    if read_only != "off":
        raise Refused(
            f"{place} is set to be read only (default_transaction_read_only), so somebody moves or mends it.",
            remedy="Wait until that is over, or ALTER ROLE or DATABASE … SET default_transaction_read_only = off.",
        )
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


def require_schema(connection: Connection, schema: str) -> None:
    """Raise Refused if the schema does not exist."""
    if connection.execute(sql.SCHEMA_EXISTS, (schema,)).fetchone() is None:
        raise Refused(f"There is no schema {schema!r} in the database.", remedy=f'CREATE SCHEMA "{schema}".')
