"""The address of an HTTP endpoint and the token that it asks for, as settings."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from penstock.spec.complaint import complaint_error
from penstock.support.secret import scheme_only

URL = re.compile(r"https?://([^\s/@,?#:\[\]]+|\[[0-9a-fA-F:.]+\])(:\d+)?(?P<rest>[/?][^\s#]*)?")
"""The URL of an endpoint; `rest` is what follows the host."""
HEADER_VALUE = re.compile(r"(?!\s)[^\x00-\x08\x0a-\x1f\x7f]*(?<!\s)")


def _url(value: str) -> str:
    if "@" in value.partition("?")[0]:
        raise complaint_error("holds a user", remedy="Write it as `user` and `password` beside `url`, best as ${VARIABLE}.")
    if not URL.fullmatch(value):
        raise complaint_error(
            f"should be the URL of an endpoint, found {scheme_only(value)}",
            remedy="Write it like https://api.example.com/orders.",
        )
    return value


Url = Annotated[str, AfterValidator(_url), WithJsonSchema({"type": "string", "pattern": "^https?://"})]
"""The URL of an endpoint."""


def _token(value: str) -> str:
    if not HEADER_VALUE.fullmatch(value) or not value.isascii():
        raise complaint_error(
            "should be what a header can hold", remedy="Use ASCII, without line breaks, or blanks at an end, as a file may have."
        )
    return value


Token = Annotated[str, Field(min_length=1), AfterValidator(_token)]
"""A bearer token."""
