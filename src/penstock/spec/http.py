"""Settings of the HTTP sink."""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.core.model import Json
from penstock.spec.complaint import complaint_error
from penstock.spec.location import Columns, GivenColumns
from penstock.spec.place import FilePath
from penstock.spec.scalar import Duration, Size
from penstock.spec.selection import TakesRows
from penstock.support.secret import Secret, remember, scheme_only

_URL = re.compile(r"https?://([^\s/@,?#:\[\]]+|\[[0-9a-fA-F:.]+\])(:\d+)?(?P<rest>[/?][^\s#]*)?")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"(?!\s)[^\x00-\x08\x0a-\x1f\x7f]*(?<!\s)")
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
    if not _URL.fullmatch(value):
        raise complaint_error(
            f"should be the URL of an endpoint, found {scheme_only(value)}",
            remedy="Write it like https://api.example.com/orders.",
        )
    return value


def _headers(value: Mapping[str, str]) -> Mapping[str, str]:
    for name, text in value.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(text) or not text.isascii():
            raise complaint_error(
                "has a name or value that no header has",
                remedy="Use ASCII, without line breaks, or blanks at an end.",
                at=(name,),
            )
        if name.lower() in _OURS or name.lower().startswith("penstock-"):
            raise complaint_error("is a header that Penstock sets", remedy="Take it out.", at=(name,))
    return value


Url = Annotated[str, AfterValidator(endpoint_url), WithJsonSchema({"type": "string", "pattern": "^https?://"})]
"""The URL of an endpoint."""


def _token(value: str) -> str:
    if not _VALUE.fullmatch(value) or not value.isascii():
        raise complaint_error(
            "should be what a header can hold", remedy="Use ASCII, without line breaks, or blanks at an end, as a file may have."
        )
    return value


Token = Annotated[str, Field(min_length=1), AfterValidator(_token)]
"""A bearer token."""

Headers = Annotated[Mapping[str, str], AfterValidator(_headers)]
"""Headers of every request."""


def shown_url(url: str) -> str:
    """Return a URL as it may be shown, without its path: that of a webhook is a secret."""
    found = _URL.fullmatch(url)
    assert found is not None
    return f"{url[: found.start('rest')]}{HIDDEN_PATH}" if found["rest"] else url


def remember_path(url: str) -> None:
    """Have messages show the path of `url` as a secret, unless it is a word that they may hold."""
    found = _URL.fullmatch(url)
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


class HTTP(TakesRows):
    """An HTTP endpoint that rows are posted to as JSON, under keys by which it recognises what is repeated."""

    type: Literal["http"] = Field(default="http", description="`http`: an HTTP endpoint.")
    url: Url = Field(description="Where to post. A URL that is a secret, such as that of a webhook: `${VARIABLE}`.")
    receiver: Literal["idempotent", "plain"] = Field(
        default="plain",
        description="What the endpoint does with a request whose `Idempotency-Key` it has seen. `idempotent`: it answers with "
        "success and does nothing, so that delivery is exactly once. `plain`: it takes the rows again, so at least once.",
    )
    body: Literal["json_lines", "json_array", "record"] = Field(
        default="json_lines",
        description="What a request holds: `json_lines`, one row a line; `json_array`, an array of rows; `record`, one row.",
    )
    rows_per_request: int | None = Field(
        default=None, ge=1, le=1_000_000, description="The most rows of one request; 1000 without it, and 1 for `record`."
    )
    request_size: Size = Field(
        default=1_000_000,
        description="The most bytes of one request; a row that is larger is sent alone.",
        json_schema_extra={"default": "1MB"},
    )
    concurrency: int = Field(
        default=1, ge=1, le=64, description="How many requests are sent side by side. With 1, rows arrive in their order."
    )
    key: Columns = Field(
        default=(), description="With `concurrency`: rows in which these columns are equal are sent one after the other."
    )
    headers: Headers = Field(default_factory=dict, description="More headers, such as `X-Api-Key: ${KEY}`.")
    user: str | None = Field(default=None, min_length=1, description="For HTTP basic authentication; with `password`.")
    password: str | None = Field(default=None, min_length=1, description="As `${VARIABLE}`.")
    token: Token | None = Field(default=None, description="A bearer token in place of `user`, as `${VARIABLE}`.")
    signing_secret: str | None = Field(
        default=None,
        min_length=16,
        description="A secret by which requests are signed as Standard Webhooks says, as `${VARIABLE}`; text, or base64 behind "
        "`whsec_`.",
    )
    ca_file: FilePath | None = Field(
        default=None, description="PEM file of the authorities to trust with `https`; by default those that `requests` trusts."
    )
    certificate_file: FilePath | None = Field(default=None, description="PEM file with our own certificate.")
    key_file: FilePath | None = Field(default=None, description="PEM file with its key, if that is not in the same file.")
    timeout: Duration = Field(
        default=30_000, description="How long to wait for an answer, or for more of it.", json_schema_extra={"default": "30s"}
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str,
            receiver: Literal["idempotent", "plain"] = "plain",
            body: Literal["json_lines", "json_array", "record"] = "json_lines",
            rows_per_request: int | None = None,
            request_size: int | str = "1MB",
            concurrency: int = 1,
            key: GivenColumns = (),
            headers: Mapping[str, str] | None = None,
            user: str | None = None,
            password: str | None = None,
            token: str | None = None,
            signing_secret: str | None = None,
            ca_file: str | None = None,
            certificate_file: str | None = None,
            key_file: str | None = None,
            timeout: int | str = "30s",
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
        ) -> None: ...

    @property
    def place(self) -> str:
        """The URL as it may be shown, without its path: that of a webhook is a secret."""
        return shown_url(self.url)

    @property
    def rows(self) -> int:
        """The most rows of one request."""
        return self.rows_per_request or (1 if self.body == "record" else 1000)

    @property
    def signing_key(self) -> bytes | None:
        """The bytes of `signing_secret`."""
        return signing_key_of(self.signing_secret)

    @model_validator(mode="after")
    def _remember(self) -> Self:
        for secret in (self.password, self.token, self.signing_secret, *self.headers.values()):
            if secret is not None:
                remember(Secret(secret))
        remember_path(self.url)
        return self

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        self._require_one_login()
        if self.key_file is not None and self.certificate_file is None:
            raise complaint_error("is there without certificate_file", remedy="Add certificate_file.", at=("key_file",))
        if self.body == "record" and self.rows != 1:
            raise complaint_error(
                "does not go with body: record", remedy="Leave it out, or take json_lines.", at=("rows_per_request",)
            )
        require_signing_key(self.signing_secret)
        return self

    def _require_one_login(self) -> None:
        if (self.user is None) != (self.password is None):
            raise complaint_error("has one of user and password", remedy="Give both, or neither.")
        ways = [
            ("token", self.token),
            ("headers", next((name for name in self.headers if name.lower() == "authorization"), None)),
        ]
        given = [way for way, value in (("user", self.user), *ways) if value is not None]
        if len(given) > 1:
            raise complaint_error(f"is given together with {given[0]}", remedy="Keep one way to log in.", at=(given[1],))

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        for name, value in super().__repr_args__():
            yield name, self.place if name == "url" else value

    def shown(self) -> dict[str, Json]:
        """Return the settings as JSON, with what may be shown of the URL."""
        return {**super().shown(), "url": self.place}
