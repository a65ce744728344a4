"""Parses the URL of a Cassandra keyspace."""

import ssl
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from penstock.errors import Usage
from penstock.sql.url import ESCAPES, TLS_PARAMETERS, one_of, parameters_of, split_url, tls_of

SCHEME = "cassandra"
CONSISTENCIES = {"local_quorum": "local_serial", "quorum": "serial", "each_quorum": "serial", "all": "serial"}
"""Consistency levels at which a read sees every acknowledged write, each with that of its conditional writes."""
_PORT = 9042
_PARAMETERS = ("consistency", "local_dc", *TLS_PARAMETERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Nodes of a cluster, a keyspace in it, and the login."""

    nodes: tuple[tuple[str, int], ...]
    keyspace: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    consistency: str
    local_dc: str | None
    tls: "ssl.SSLContext | None" = field(repr=False)

    @property
    def place(self) -> str:
        """Nodes and keyspace for messages, without user and password."""
        return f"{','.join(f'{host}:{port}' for host, port in self.nodes)}/{self.keyspace}"


def address_of(url: str) -> Address:
    """Parse `url`. Raises Usage."""
    split = split_url(url)
    if split is None:
        raise _no_url()
    parts, _ = split
    let_in, _, hosts = parts.netloc.rpartition("@")
    try:
        nodes = tuple(_node(host) for host in hosts.split(","))
    except ValueError:
        raise _no_url() from None
    keyspace = unquote(parts.path[1:])
    if parts.scheme != SCHEME or not keyspace or "/" in keyspace:
        raise _no_url()
    user, _, password = let_in.partition(":")
    parameters = parameters_of(parts.query, _PARAMETERS)
    return Address(
        nodes=nodes,
        keyspace=keyspace,
        user=unquote(user),
        password=unquote(password),
        consistency=one_of(tuple(CONSISTENCIES), parameters.get("consistency", "local_quorum"), name="consistency"),
        local_dc=parameters.get("local_dc"),
        tls=tls_of(parameters, modes_without=("disabled",))[1],
    )


def _node(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return unquote(parts.hostname), parts.port or _PORT


def _no_url() -> Usage:
    return Usage(
        "`url` is no URL of a keyspace of Cassandra.",
        remedy=f"Write cassandra://user:password@host:9042,otherhost:9042/keyspace. {ESCAPES}",
    )
