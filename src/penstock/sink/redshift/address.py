"""The URL of a Redshift database, parsed into its parts."""

from dataclasses import dataclass

from penstock.sql.url import ServerAddress, UrlForm, one_of

_MODES = ("verify-full", "verify-ca", "disable")
_FORM = UrlForm(
    what="Redshift", schemes=("redshift",), port=5439, parameters=("connect_timeout", "sslmode"), connect_timeout_s=10.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(ServerAddress):
    """Where the cluster or workgroup is, and how to log in."""

    sslmode: str


def address_of(url: str) -> Address:
    """Parse `url`. Raise Usage."""
    parts, parameters = _FORM.parts_of(url)
    return Address(**parts, sslmode=one_of(_MODES, parameters.get("sslmode", _MODES[0]), name="sslmode"))
