"""The address of an HTTP endpoint, and what is sent with each request, as settings that sinks, sources and exports share."""

import base64
import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema

from penstock.spec.complaint import complaint_error
from penstock.support.secret import Secret, remember, scheme_only

URL = re.compile(r"https?://([^\s/@,?#:\[\]]+|\[[0-9a-fA-F:.]+\])(:\d+)?(?P<rest>[/?][^\s#]*)?")
"""The URL of an endpoint; `rest` is what follows the host."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?!\s)[^\x00-\x08\x0a-\x1f\x7f]*(?<!\s)")

_OURS = frozenset(
    {"idempotency-key", "content-type", "content-length", "host", "transfer-encoding", "connection"}
    | {"webhook-id", "webhook-timestamp", "webhook-signature"}
)
_SHORTEST_SECRET_PATH = 12
"""A shorter path is a word that messages may hold."""
HIDDEN_PATH = "/…"
"""What is shown in place of a URL's path."""
_STANDARD_SECRET = "whsec_"  # noqa: S105 - what such secrets begin with


def endpoint_url(value: str) -> str:
    """Return `value` if it is the URL of an endpoint without a user. Raises pydantic's custom error."""
    if "@" in value.partition("?")[0]:
        raise complaint_error("holds a user", remedy="Write it as `user` and `password` beside `url`, best as ${VARIABLE}.")
    if not URL.fullmatch(value):
        raise complaint_error(
            f"should be the URL of an endpoint, found {scheme_only(value)}",
            remedy="Write it like https://api.example.com/orders.",
        )
    try:
        _require_possible(urlsplit(value))
    except ValueError:
        raise complaint_error(
            "has a host or a port that cannot be", remedy="Write a name like api.example.com, and a port up to 65535."
        ) from None
    return value


def _require_possible(parts: SplitResult) -> None:
    """Raise ValueError for a host or a port that no connection can be made to: HTTP clients raise all kinds of errors there."""
    _ = parts.port
    (parts.hostname or "").encode("idna")


Url = Annotated[str, AfterValidator(endpoint_url), WithJsonSchema({"type": "string", "pattern": "^https?://"})]
"""The URL of an endpoint."""


def _token(value: str) -> str:
    if not _HEADER_VALUE.fullmatch(value) or not value.isascii():
        raise complaint_error(
            "should be what a header can hold", remedy="Use ASCII, without line breaks, or blanks at an end, as a file may have."
        )
    return value


Token = Annotated[str, Field(min_length=1), AfterValidator(_token)]
"""A bearer token."""


def _headers(value: Mapping[str, str]) -> Mapping[str, str]:
    for name, text in value.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text) or not text.isascii():
            raise complaint_error(
                "has a name or value that no header has",
                remedy="Use ASCII, without line breaks, or blanks at an end.",
                at=(name,),
            )
        if name.lower() in _OURS or name.lower().startswith("penstock-"):
            raise complaint_error("is a header that Penstock sets", remedy="Take it out.", at=(name,))
    return value


Headers = Annotated[Mapping[str, str], AfterValidator(_headers)]
"""Headers of every request."""


def shown_url(url: str) -> str:
    """Return a URL as it may be shown, without its path: that of a webhook is a secret."""
    found = URL.fullmatch(url)
    assert found is not None
    return f"{url[: found.start('rest')]}{HIDDEN_PATH}" if found["rest"] else url


def remember_path(url: str) -> None:
    """Have messages show the path of `url` as a secret, unless it is a word that they may hold."""
    found = URL.fullmatch(url)
    if found is not None and found["rest"] and len(found["rest"]) >= _SHORTEST_SECRET_PATH:
        remember(Secret(found["rest"]))


def signing_key_of(secret: str | None) -> bytes | None:
    """Return the bytes of a signing secret; None without one. Raises ValueError where it is no base64 behind `whsec_`."""
    if secret is None or not secret.startswith(_STANDARD_SECRET):
        return None if secret is None else secret.encode()
    return base64.b64decode(secret.removeprefix(_STANDARD_SECRET), validate=True)


def require_signing_key(secret: str | None) -> None:
    """Raise the complaint about `signing_secret` where it is none."""
    try:
        signing_key_of(secret)
    except ValueError:
        raise complaint_error("is no base64 behind whsec_", remedy="Copy the whole secret.", at=("signing_secret",)) from None
