"""The URL of a MySQL or MariaDB database, taken apart."""

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from penstock.errors import Usage

SCHEMES = frozenset({"mysql", "mariadb"})
_SSL_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_PARAMETERS = ("connect_timeout", "ssl_ca", "ssl_cert", "ssl_key", "ssl_mode", "unix_socket")
_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is, and how it lets us in. `ssl`: the client's arguments for TLS; it tries TLS where they are empty."""

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
        """For people, without user and password."""
        return f"{self.unix_socket or f'{self.host}:{self.port}'}/{self.database}"


def address_of(url: str) -> Address:
    """The parts of `url`. Raises Usage."""
    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError:
        raise _no_url() from None
    database = unquote(parts.path[1:])
    if parts.scheme not in SCHEMES or not database or "/" in parts.path[1:]:
        raise _no_url()
    parameters = _parameters(parts)
    return Address(
        host=unquote(parts.hostname or "localhost"),
        port=port,
        database=database,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        unix_socket=parameters.get("unix_socket"),
        connect_timeout_s=_seconds(parameters.get("connect_timeout")),
        ssl=_ssl(parameters),
    )


def _no_url() -> Usage:
    return Usage(
        "`url` is no URL of a MySQL or MariaDB database.", remedy="Write mysql://user:password@host:3306/database, % as %25."
    )


def _parameters(parts: SplitResult) -> dict[str, str]:
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = [name for name in parameters if name not in _PARAMETERS]
    if unknown:
        raise Usage(f"`url` has the parameter {unknown[0]!r}.", remedy=f"Use {', '.join(_PARAMETERS)}.")
    return parameters


def _seconds(text: str | None) -> float:
    if text is None:
        return _CONNECT_TIMEOUT_S
    if not text.isdigit() or not 0 < int(text) <= 3600:
        raise Usage(f"`connect_timeout` of `url` is {text!r}, expected 1 to 3600 seconds.", remedy="Correct it.")
    return float(text)


def _ssl(parameters: dict[str, str]) -> dict[str, Any]:
    ca, cert = parameters.get("ssl_ca"), parameters.get("ssl_cert")
    mode = parameters.get("ssl_mode") or ("verify_identity" if ca else "required" if cert else "preferred")
    if mode not in _SSL_MODES:
        raise Usage(f"`ssl_mode` of `url` is {mode!r}, expected one of {', '.join(_SSL_MODES)}.", remedy="Correct it.")
    if mode in {"disabled", "preferred"}:
        return {"ssl_disabled": True} if mode == "disabled" else {}
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, parameters.get("ssl_key"))
    except OSError as cause:
        raise Usage(f"The certificates that `url` names cannot be used: {cause}.", remedy="Correct them.") from cause
    context.check_hostname = mode == "verify_identity"
    if mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}
