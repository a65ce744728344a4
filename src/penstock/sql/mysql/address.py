"""Parsing of the URL of a MySQL or MariaDB database."""

from dataclasses import dataclass, field
from typing import Any

from penstock.sql.url import TLS_PARAMETERS, ServerAddress, UrlForm, tls_of

_WITHOUT_TLS = ("disabled", "preferred")
"""Modes without a TLS context of ours; with `preferred` the client tries TLS by itself."""
_FORM = UrlForm(
    what="MySQL or MariaDB",
    schemes=("mysql", "mariadb"),
    host="localhost",
    port=3306,
    parameters=("connect_timeout", *TLS_PARAMETERS, "unix_socket"),
    connect_timeout_s=10.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(ServerAddress):
    """Address of a database, and credentials. `ssl`: the client's arguments for TLS; if empty, it tries TLS by itself."""

    unix_socket: str | None
    ssl: dict[str, Any] = field(repr=False)

    @property
    def place(self) -> str:
        return f"{self.unix_socket or f'{self.host}:{self.port}'}/{self.database}"


def address_of(url: str) -> Address:
    """Return the parts of `url`. Raises Usage."""
    parts, parameters = _FORM.parts_of(url)
    return Address(**parts, unix_socket=parameters.get("unix_socket"), ssl=_ssl(parameters))


def _ssl(parameters: dict[str, str]) -> dict[str, Any]:
    mode, context = tls_of(parameters, modes_without=_WITHOUT_TLS)
    if context is None:
        return {"ssl_disabled": True} if mode == "disabled" else {}
    return {"ssl": context}
