"""The URL of a database of SQL Server or Azure SQL, parsed into its parts."""

import ssl
from dataclasses import dataclass

from penstock.errors import Usage
from penstock.sql.url import ServerAddress, UrlForm, one_of

_MODES = ("verify_identity", "verify_ca", "disabled")
_FORM = UrlForm(
    what="SQL Server",
    schemes=("sqlserver",),
    port=1433,
    parameters=("connect_timeout", "ssl_ca", "ssl_mode"),
    connect_timeout_s=15.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(ServerAddress):
    """Where the server is, and how to log in. `ca`: the file of trusted certificates, None for no TLS."""

    ca: str | None = None
    checks_host: bool = True


def address_of(url: str) -> Address:
    """Parse `url`. Raise Usage."""
    parts, parameters = _FORM.parts_of(url)
    mode = one_of(_MODES, parameters.get("ssl_mode", _MODES[0]), name="ssl_mode")
    return Address(
        **parts,
        ca=None if mode == "disabled" else parameters.get("ssl_ca") or _trusted_by_the_system(),
        checks_host=mode == "verify_identity",
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
