"""The URL of a database of SQL Server or Azure SQL, parsed into its parts."""

import ssl
from dataclasses import dataclass, field
from urllib.parse import unquote

from penstock.errors import Usage
from penstock.sql.url import ESCAPES, one_of, parameters_of, seconds_of, split_url

_MODES = ("verify_identity", "verify_ca", "disabled")
_CONNECT_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is, and how to log in. `ca`: the file of trusted certificates, None for no TLS."""

    host: str
    port: int
    database: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    ca: str | None = None
    checks_host: bool = True
    connect_timeout_s: float = _CONNECT_TIMEOUT_S

    @property
    def place(self) -> str:
        """The address for people, without user and password."""
        return f"{self.host}:{self.port}/{self.database}"


def address_of(url: str) -> Address:
    """Parse `url`. Raise Usage."""
    split = split_url(url)
    if split is None:
        raise _no_url()
    parts, port = split
    database = unquote(parts.path[1:])
    if parts.scheme != "sqlserver" or not parts.hostname or not database or "/" in parts.path[1:]:
        raise _no_url()
    parameters = parameters_of(parts.query, ("connect_timeout", "ssl_ca", "ssl_mode"))
    mode = one_of(_MODES, parameters.get("ssl_mode", _MODES[0]), name="ssl_mode")
    return Address(
        host=parts.hostname,
        port=port or 1433,
        database=database,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        ca=None if mode == "disabled" else parameters.get("ssl_ca") or _trusted_by_the_system(),
        checks_host=mode == "verify_identity",
        connect_timeout_s=seconds_of(parameters, "connect_timeout", usual=_CONNECT_TIMEOUT_S),
    )


def _trusted_by_the_system() -> str:
    paths = ssl.get_default_verify_paths()
    found = paths.cafile or paths.openssl_cafile
    if not found:
        raise Usage(
            "`url` asks for TLS, and this system has no file of trusted certificates.",
            remedy="Add ?ssl_ca=/path/to/ca.pem, or ?ssl_mode=disabled.",
        )
    return found


def _no_url() -> Usage:
    return Usage(
        "`url` is no URL of a SQL Server database.", remedy=f"Write sqlserver://user:password@host:1433/database. {ESCAPES}"
    )
