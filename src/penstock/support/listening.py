"""Where a server of Penstock listens, who can reach it, and the TLS that it speaks."""

import re
import ssl
from ipaddress import ip_address
from pathlib import Path

from penstock.errors import Usage

_ADDRESS = re.compile(r"(?P<host>[\w.-]+)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\]")
_HIGHEST_PORT = 65_535


def host_and_port(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. An IPv6 host is given in brackets and returned without. Raises ValueError."""
    host, _, port = text.rpartition(":")
    found = _ADDRESS.fullmatch(host)
    if found is None or not (port.isascii() and port.isdigit() and int(port) <= _HIGHEST_PORT):
        raise ValueError(text)
    return found["host"] or found["ipv6"], int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return the TLS of a server; without `key`, the certificate's file holds it. Raises Usage if one cannot be used."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without the empty password a key that has one would be asked for in the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as cause:  # an SSLError is an OSError
        raise Usage(
            f"The certificate {certificate} and its key{f' {key}' if key else ''} cannot be used: {cause}.",
            remedy="Give PEM files: the certificate with those of its issuers, and its key, which has no password.",
        ) from cause
    return context
