"""Parsing of the URL of a MySQL or MariaDB database."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from penstock.errors import Usage
from penstock.sql.url import ESCAPES, TLS_PARAMETERS, parameters_of, seconds_of, split_url, tls_of

SCHEMES = frozenset({"mysql", "mariadb"})
_WITHOUT_TLS = ("disabled", "preferred")
"""Modes without a TLS context of ours; with `preferred` the client tries TLS by itself."""
_PARAMETERS = ("connect_timeout", *TLS_PARAMETERS, "unix_socket")
_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address of a database, and credentials. `ssl`: the client's arguments for TLS; if empty, it tries TLS by itself."""

    host: str
    port: int
    database: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    unix_socket: str | None = None
    connect_timeout_s: float = _CONNECT_TIMEOUT_S
    ssl: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def place(self) -> str:
        """Server and database for messages, without user and password."""
        return f"{self.unix_socket or f'{self.host}:{self.port}'}/{self.database}"


def address_of(url: str) -> Address:
    """Return the parts of `url`. Raises Usage."""
    split = split_url(url)
    if split is None:
        raise _no_url()
    parts, port = split
    database = unquote(parts.path[1:])
    if parts.scheme not in SCHEMES or not database or "/" in parts.path[1:]:
        raise _no_url()
    parameters = parameters_of(parts.query, _PARAMETERS)
    return Address(
        host=unquote(parts.hostname or "localhost"),
        port=port or 3306,
        database=database,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        unix_socket=parameters.get("unix_socket"),
        connect_timeout_s=seconds_of(parameters, "connect_timeout", usual=_CONNECT_TIMEOUT_S),
        ssl=_ssl(parameters),
    )


def _no_url() -> Usage:
    return Usage(
        "`url` is no URL of a MySQL or MariaDB database.", remedy=f"Write mysql://user:password@host:3306/database. {ESCAPES}"
    )


def _ssl(parameters: dict[str, str]) -> dict[str, Any]:
    mode, context = tls_of(parameters, modes_without=_WITHOUT_TLS)
    if context is None:
        return {"ssl_disabled": True} if mode == "disabled" else {}
    return {"ssl": context}
