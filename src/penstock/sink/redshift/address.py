"""The URL of a Redshift database, taken apart."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from penstock.databaseurl import one_of, parameters_of, seconds_of
from penstock.errors import Usage

_MODES = ("verify-full", "verify-ca", "disable")
_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the cluster or workgroup is, and how it lets us in."""

    host: str
    port: int
    database: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    sslmode: str = _MODES[0]
    connect_timeout_s: float = _CONNECT_TIMEOUT_S

    @property
    def place(self) -> str:
        """For people, without user and password."""
        return f"{self.host}:{self.port}/{self.database}"


def address_of(url: str) -> Address:
    """The parts of `url`. Raises Usage."""
    try:
        parts = urlsplit(url)
        port = parts.port or 5439
    except ValueError:
        raise _no_url() from None
    database = unquote(parts.path[1:])
    if parts.scheme != "redshift" or not parts.hostname or not database or "/" in parts.path[1:]:
        raise _no_url()
    parameters = parameters_of(parts.query, ("connect_timeout", "sslmode"))
    return Address(
        host=parts.hostname,
        port=port,
        database=database,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        sslmode=one_of(_MODES, parameters.get("sslmode", _MODES[0]), name="sslmode"),
        connect_timeout_s=seconds_of(parameters, "connect_timeout", usual=_CONNECT_TIMEOUT_S),
    )


def _no_url() -> Usage:
    return Usage("`url` is no URL of a Redshift database.", remedy="Write redshift://user:password@host:5439/database, % as %25.")
