"""Parsing of database URLs: user, host and port, known parameters, and TLS settings."""

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from penstock.errors import Usage

TLS_PARAMETERS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_mode")
UNTRUSTED_CERTIFICATE = (
    "Name the authority of its certificate by ?ssl_ca=/path/to/ca.pem in the URL, and the host as the certificate does."
)
"""The remedy for a certificate that is not trusted."""
ESCAPES = "Write @ as %40, / as %2F, ? as %3F, # as %23 and % as %25 in user and password."
_USER_INFO_AND_HOST = re.compile(r"[^/?#]*")
_TLS_MODES = ("required", "verify_ca", "verify_identity")


def unescaped() -> Usage:
    """Return the error for a URL in which part of the password was read as another part. It must show nothing of the URL."""
    return Usage("The user or the password in `url` contains a character that must be escaped.", remedy=ESCAPES)


def split_url(url: str) -> tuple[SplitResult, int | None] | None:
    """Return the parts of a URL and its port, or None if it is no URL.

    The last `@` ends user and password, which may hold others. The port is None if there are several hosts. Raises Usage for an
    `@` behind the host: there a `/`, `?` or `#` in the password was taken for the end of the host.
    """
    _, colon, rest = url.partition("://")
    if not colon:
        return None
    host = _USER_INFO_AND_HOST.match(rest)
    if host is not None and "@" in rest[host.end() :]:
        raise unescaped()
    try:
        parts = urlsplit(url)
        return parts, None if "," in parts.netloc.rpartition("@")[2] else parts.port
    except ValueError:  # its text would show parts of the URL
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a server and the database on it are, and how to log in."""

    host: str
    port: int
    database: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    connect_timeout_s: float

    @property
    def place(self) -> str:
        """The address for people, without user and password."""
        return f"{self.host}:{self.port}/{self.database}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlForm:
    """The form of a server's URLs. `what` names the database for people, `host` is the usual one, None where it must be given."""

    what: str
    schemes: tuple[str, ...]
    port: int
    parameters: tuple[str, ...]
    connect_timeout_s: float
    host: str | None = None

    def parts_of(self, url: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the fields of a `ServerAddress` by name, and the parameters of `url`. Raises Usage."""
        split = split_url(url)
        if split is None:
            raise self._mismatch()
        parts, port = split
        host, database = unquote(parts.hostname or "") or self.host, unquote(parts.path[1:])
        if parts.scheme not in self.schemes or not host or not database or "/" in parts.path[1:]:
            raise self._mismatch()
        parameters = parameters_of(parts.query, self.parameters)
        fields = {
            "host": host,
            "port": port or self.port,
            "database": database,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "connect_timeout_s": seconds_of(parameters, "connect_timeout", usual=self.connect_timeout_s),
        }
        return fields, parameters

    def _mismatch(self) -> Usage:
        example = f"{self.schemes[0]}://user:password@host:{self.port}/database"
        return Usage(f"`url` is no URL of a {self.what} database.", remedy=f"Write {example}. {ESCAPES}")


def parameters_of(query: str, known: Sequence[str]) -> dict[str, str]:
    """Return the parameters of a URL. Raises Usage unless all of them are `known`."""
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise Usage(f"`url` has the parameter {unknown[0]!r}.", remedy=f"Use {', '.join(known)}.")
    return parameters


def one_of(valid: Sequence[str], value: str, *, name: str) -> str:
    """Return the parameter's value. Raises Usage unless it is one of the `valid` ones."""
    if value not in valid:
        raise Usage(f"`{name}` of `url` is {value!r}, expected one of {', '.join(valid)}.", remedy="Correct it.")
    return value


def seconds_of(parameters: Mapping[str, str], name: str, *, usual: float) -> float:
    """Return the parameter's value, 1 to 3600 seconds, or `usual` if it is absent. Raises Usage."""
    text = parameters.get(name)
    if text is None:
        return usual
    if not text.isdigit() or not 0 < int(text) <= 3600:
        raise Usage(f"`{name}` of `url` is {text!r}, expected 1 to 3600 seconds.", remedy="Correct it.")
    return float(text)


def tls_of(parameters: Mapping[str, str], *, modes_without: Sequence[str]) -> tuple[str, "ssl.SSLContext | None"]:
    """Return the TLS mode, and the SSL context unless the mode is one of `modes_without`. Raises Usage.

    By default, the mode is `verify_identity` with `ssl_ca`, `required` with `ssl_cert` alone, else the last of `modes_without`.
    """
    ca, cert = parameters.get("ssl_ca"), parameters.get("ssl_cert")
    default = "verify_identity" if ca else "required" if cert else modes_without[-1]
    mode = one_of((*modes_without, *_TLS_MODES), parameters.get("ssl_mode", default), name="ssl_mode")
    if mode in modes_without:
        return mode, None
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, parameters.get("ssl_key"))
    except OSError as cause:
        raise Usage(f"The certificates that `url` names cannot be used: {cause}.", remedy="Correct them.") from cause
    context.check_hostname = mode == "verify_identity"
    if mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return mode, context
