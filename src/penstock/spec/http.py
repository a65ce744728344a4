"""Settings of the HTTP sink."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from penstock.core.model import Json
from penstock.spec.complaint import complaint_error
from penstock.spec.endpoint import Headers, Token, Url, remember_path, require_signing_key, shown_url, signing_key_of
from penstock.spec.location import Columns, GivenColumns
from penstock.spec.place import FilePath
from penstock.spec.scalar import Duration, Size
from penstock.spec.selection import TakesRows
from penstock.support.secret import Secret, remember


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
