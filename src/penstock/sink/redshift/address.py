"""The URL of a Redshift database, parsed into its parts."""

from dataclasses import dataclass, field
from urllib.parse import unquote

from penstock.errors import Usage
from penstock.sql.url import ESCAPES, one_of, parameters_of, seconds_of, split_url

_MODES = ("verify-full", "verify-ca", "disable")
_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the cluster or workgroup is, and how to log in."""

    host: str
    port: int
    database: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    sslmode: str = _MODES[0]
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
    if parts.scheme != "redshift" or not parts.hostname or not database or "/" in parts.path[1:]:
        raise _no_url()
    parameters = parameters_of(parts.query, ("connect_timeout", "sslmode"))
    return Address(
        host=parts.hostname,
        port=port or 5439,
        database=database,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        sslmode=one_of(_MODES, parameters.get("sslmode", _MODES[0]), name="sslmode"),
        connect_timeout_s=seconds_of(parameters, "connect_timeout", usual=_CONNECT_TIMEOUT_S),
    )


def _no_url() -> Usage:
    return Usage(
        "`url` is no URL of a Redshift database.", remedy=f"Write redshift://user:password@host:5439/database. {ESCAPES}"
    )
