"""Where an endpoint listens, and who may ask it."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from penstock.errors import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where an endpoint listens, and who may ask. Port 0: one that is free. `token`: asked for before anything but a probe."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    key: Path | None = None

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; the host of an IPv6 address stands in brackets. Raises Usage."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65_536):
        raise Usage(
            f"--listen is HOST:PORT, found {text!r}.",
            remedy="Give both, such as 127.0.0.1:9464, or [::1]:9464 for an address of IPv6.",
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
