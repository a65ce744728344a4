"""The URL of a keyspace of Cassandra, taken apart."""

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.errors import Usage

SCHEME = "cassandra"
CONSISTENCIES = {"local_quorum": "local_serial", "quorum": "serial", "each_quorum": "serial", "all": "serial"}
"""Those with which a read sees every write that was acknowledged, each with that of its conditional writes."""
_PORT = 9042
_SSL_MODES = ("disabled", "required", "verify_ca", "verify_identity")
_PARAMETERS = ("consistency", "local_dc", "ssl_ca", "ssl_cert", "ssl_key", "ssl_mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where some nodes are, and how they let us in. `place` is for people, without user and password."""

    nodes: tuple[tuple[str, int], ...]
    keyspace: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    consistency: str
    local_dc: str | None
    tls: "ssl.SSLContext | None" = field(repr=False)

    @property
    def place(self) -> str:
        """Nodes and keyspace."""
        return f"{','.join(f'{host}:{port}' for host, port in self.nodes)}/{self.keyspace}"


def address_of(url: str) -> Address:
    """The parts of `url`. Raises Usage."""
    try:
        parts = urlsplit(url)
        let_in, _, hosts = parts.netloc.rpartition("@")
        nodes = tuple(_node(host) for host in hosts.split(","))
    except ValueError:
        raise _no_url() from None
    keyspace = unquote(parts.path[1:])
    if parts.scheme != SCHEME or not keyspace or "/" in keyspace:
        raise _no_url()
    user, _, password = let_in.partition(":")
    parameters = _parameters(parts.query)
    return Address(
        nodes=nodes,
        keyspace=keyspace,
        user=unquote(user),
        password=unquote(password),
        consistency=_one_of(parameters.get("consistency", "local_quorum"), tuple(CONSISTENCIES), "consistency"),
        local_dc=parameters.get("local_dc"),
        tls=_tls(parameters),
    )


def _node(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return unquote(parts.hostname), parts.port or _PORT


def _no_url() -> Usage:
    return Usage(
        "`url` is no URL of a keyspace of Cassandra.",
        remedy="Write cassandra://user:password@host:9042,otherhost:9042/keyspace, % as %25.",
    )


def _parameters(query: str) -> dict[str, str]:
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in parameters if name not in _PARAMETERS]
    if unknown:
        raise Usage(f"`url` has the parameter {unknown[0]!r}.", remedy=f"Use {', '.join(_PARAMETERS)}.")
    return parameters


def _one_of(value: str, valid: tuple[str, ...], name: str) -> str:
    if value not in valid:
        raise Usage(f"`{name}` of `url` is {value!r}, expected one of {', '.join(valid)}.", remedy="Correct it.")
    return value


def _tls(parameters: dict[str, str]) -> "ssl.SSLContext | None":
    ca, cert = parameters.get("ssl_ca"), parameters.get("ssl_cert")
    default = "verify_identity" if ca else "required" if cert else "disabled"
    mode = _one_of(parameters.get("ssl_mode", default), _SSL_MODES, "ssl_mode")
    if mode == "disabled":
        return None
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, parameters.get("ssl_key"))
    except OSError as cause:
        raise Usage(f"The certificates that `url` names cannot be used: {cause}.", remedy="Correct them.") from cause
    context.check_hostname = mode == "verify_identity"
    if mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return context
