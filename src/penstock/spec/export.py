"""Settings of what a run sends to others: events, traces and metrics by OpenTelemetry, lineage by OpenLineage."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.core.model import Json
from penstock.spec.complaint import complaint_error
from penstock.spec.endpoint import Headers, Token, endpoint_url, remember_path, require_signing_key, shown_url, signing_key_of
from penstock.spec.place import FilePath
from penstock.spec.scalar import Duration, Name
from penstock.spec.settings import Settings
from penstock.support.secret import MASK, Secret, remember, values_in

EventName: TypeAlias = Literal["failed", "fenced", "stalled", "recovered"]
EVENTS: tuple[EventName, ...] = get_args(EventName)
_Path: TypeAlias = str | PathLike[str]


def _url(value: str) -> str:
    if "@" in value.partition("?")[0]:
        raise complaint_error("holds a user", remedy="Give what lets in as a header, best as ${VARIABLE}.")
    return endpoint_url(value)


Url = Annotated[str, AfterValidator(_url), WithJsonSchema({"type": "string", "pattern": "^https?://"})]
"""The URL of a receiver, without user and password."""


class _Receiver(Settings):
    """Base of whoever is sent something over HTTP. Its URL is shown without its path, and headers are secrets."""

    headers: Headers = Field(default_factory=dict, description="More headers, such as `X-Api-Key: ${KEY}`.")
    ca_file: FilePath | None = Field(default=None, description="PEM file of the authorities to trust with `https`.")
    certificate_file: FilePath | None = Field(default=None, description="PEM file with our own certificate.")
    key_file: FilePath | None = Field(default=None, description="PEM file with its key, if that is not in the same file.")
    timeout: Duration = Field(default=10_000, description="How long to wait for an answer.", json_schema_extra={"default": "10s"})

    @model_validator(mode="after")
    def _keep_secrets(self) -> Self:
        for value in self.headers.values():
            remember(Secret(value))
        if (url := self._url()) is not None:
            remember_path(url)
        files = ("ca_file", "certificate_file", "key_file")
        unused = next((name for name in files if getattr(self, name) is not None), None)
        if unused is not None and url is not None and url.startswith("http:"):
            what = "is given, but the URL begins with http://, where nothing is encrypted"
            raise complaint_error(what, remedy=f"Write https://, or take {unused} out.", at=(unused,))
        if self.key_file is not None and self.certificate_file is None:
            raise complaint_error("is there without certificate_file", remedy="Add certificate_file.", at=("key_file",))
        if self.timeout == 0:
            raise complaint_error("is no time at all", remedy="Write it like 10s.", at=("timeout",))
        return self

    def _url(self) -> str | None:
        """Return the URL that requests go to."""
        raise NotImplementedError

    def _of_requests(self) -> str | None:
        """Return a setting that was given and that only requests have."""
        names = ("token", "signing_secret", "headers", "ca_file", "certificate_file", "key_file")
        return next((name for name in names if getattr(self, name, None)), None)

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        shown = self.shown()
        for name, value in super().__repr_args__():
            yield name, shown[name] if name in {"url", "endpoint", "headers", "command"} else value

    @property
    def place(self) -> str | None:
        """The URL as it may be shown; None where the settings have none."""
        url = self._url()
        return None if url is None else shown_url(url)

    def shown(self) -> dict[str, Json]:
        """Return the settings as JSON, with what may be shown of the URL, and no value of a header."""
        found = super().shown()
        urls: dict[str, Json] = {
            name: self.place for name in ("url", "endpoint") if name in found and getattr(self, name) == self._url()
        }
        return {**found, **urls, "headers": dict.fromkeys(self.headers, MASK)}


class EventTarget(_Receiver):
    """Who is told when a run fails, is fenced, stalls or recovers: a webhook (`url`) or a command. Exactly one of them."""

    url: Url | None = Field(default=None, description="Where to post events as JSON, best as `${VARIABLE}`.")
    command: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="A program and its arguments, run without a shell; it gets the event as JSON on its input."
    )
    events: Annotated[tuple[EventName, ...], Field(strict=False, min_length=1)] = Field(
        default=EVENTS, description="Which events: some of `failed`, `fenced`, `stalled`, `recovered`; all of them without it."
    )
    stalled_after: Duration = Field(
        default=900_000,
        description="How long a batch may take, or the query be busy without one, before `stalled` is sent.",
        json_schema_extra={"default": "15m"},
    )
    with_message: bool = Field(
        default=False,
        description="Send the error's message and remedy, too. A message can quote a value of a row that was refused.",
    )
    token: Token | None = Field(default=None, description="A bearer token for `url`, as `${VARIABLE}`.")
    signing_secret: str | None = Field(
        default=None,
        min_length=16,
        description="A secret by which requests are signed as Standard Webhooks says, as `${VARIABLE}`; text, or base64 behind "
        "`whsec_`.",
    )
    retry_timeout: Duration = Field(
        default=600_000,
        description="How long an event is tried that is not taken, with growing pauses. The end of a run waits 10 seconds.",
        json_schema_extra={"default": "10m"},
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str | None = None,
            command: Sequence[str] = (),
            events: Sequence[EventName] = EVENTS,
            stalled_after: int | str = "15m",
            with_message: bool = False,
            headers: Mapping[str, str] | None = None,
            token: str | None = None,
            signing_secret: str | None = None,
            ca_file: _Path | None = None,
            certificate_file: _Path | None = None,
            key_file: _Path | None = None,
            timeout: int | str = "10s",
            retry_timeout: int | str = "10m",
        ) -> None: ...

    @property
    def signing_key(self) -> bytes | None:
        """The bytes of `signing_secret`."""
        return signing_key_of(self.signing_secret)

    def _url(self) -> str | None:
        return self.url

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if (self.url is None) == (not self.command):
            has = "has neither url nor command" if self.url is None else "has both url and command"
            raise complaint_error(has, remedy="Give exactly one of them.")
        require_signing_key(self.signing_secret)
        for secret in (self.token, self.signing_secret, *(value for part in self.command for value in values_in(part))):
            if secret is not None:
                remember(Secret(secret))
        if self.command and (unused := self._of_requests()) is not None:
            raise complaint_error("is of requests, and this is a command", remedy="Take it out.", at=(unused,))
        if self.token is not None and any(name.lower() == "authorization" for name in self.headers):
            raise complaint_error("is given together with a header Authorization", remedy="Keep one of them.", at=("token",))
        if self.stalled_after == 0:
            raise complaint_error("is no time at all", remedy="Write it like 15m.", at=("stalled_after",))
        return self

    def shown(self) -> dict[str, Json]:
        """Return the settings as JSON, of a command the program alone: an argument can be a secret."""
        return {**super().shown(), "command": [*self.command[:1], *(MASK for _ in self.command[1:])]}


def _named(given: Any) -> Any:
    """Return the targets as `given`, unless they are one target whose settings stand where names belong."""
    if isinstance(given, Mapping):
        for key in ("url", "command"):
            if key in given and not isinstance(given[key], Mapping | EventTarget):
                raise complaint_error(
                    "stands where the name of a target belongs", remedy=f"Write on_event: {{pager: {{{key}: …}}}}.", at=(key,)
                )
    return given


EventTargets: TypeAlias = Annotated[Mapping[Name, EventTarget], BeforeValidator(_named)]
"""Targets of events by their names."""


class OpenTelemetry(_Receiver):
    """Traces and metrics of a run, sent by OTLP over HTTP. Needs the extra `otel`. What is left out is taken from `OTEL_*`."""

    endpoint: Url | None = Field(
        default=None,
        description="The collector, such as `http://collector:4318`; without it what OTEL_EXPORTER_OTLP_ENDPOINT says.",
    )
    traces: bool = Field(default=True, description="Send a trace for each batch, with a span for each step and sink.")
    metrics: bool = Field(
        default=True, description="Send what `penstock metrics` serves, and how long the steps of batches take."
    )
    metrics_interval: Duration = Field(
        default=60_000,
        description="How often metrics are sent. Each time looks at ledger, checkpoint, brokers and sinks.",
        json_schema_extra={"default": "1m"},
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            endpoint: str | None = None,
            traces: bool = True,
            metrics: bool = True,
            metrics_interval: int | str = "1m",
            headers: Mapping[str, str] | None = None,
            ca_file: _Path | None = None,
            certificate_file: _Path | None = None,
            key_file: _Path | None = None,
            timeout: int | str = "10s",
        ) -> None: ...

    def _url(self) -> str | None:
        return self.endpoint

    @model_validator(mode="after")
    def _sends_something(self) -> Self:
        if not (self.traces or self.metrics):
            raise complaint_error("sends neither traces nor metrics", remedy="Take it out, or leave one of them true.")
        if self.metrics_interval < _SHORTEST_INTERVAL_MS:
            raise complaint_error("is less than a second", remedy="Write it like 1m.", at=("metrics_interval",))
        return self


_SHORTEST_INTERVAL_MS = 1_000


class OpenLineage(_Receiver):
    """Lineage of a run, as events of OpenLineage. Needs the extra `openlineage`."""

    url: Url | None = Field(
        default=None,
        description="The server, such as `http://marquez:5000`; without it what `openlineage.yml` or OPENLINEAGE_URL says.",
    )
    endpoint: str = Field(default="api/v1/lineage", min_length=1, description="The path below `url`.")
    namespace: str = Field(default="default", min_length=1, description="The namespace of the job, whose name is the pipeline's.")
    token: Token | None = Field(default=None, description="An API key, as `${VARIABLE}`.")
    interval: Duration = Field(
        default=60_000,
        description="How often a run that goes on says how many rows it has delivered.",
        json_schema_extra={"default": "1m"},
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str | None = None,
            endpoint: str = "api/v1/lineage",
            namespace: str = "default",
            token: str | None = None,
            interval: int | str = "1m",
            headers: Mapping[str, str] | None = None,
            ca_file: _Path | None = None,
            certificate_file: _Path | None = None,
            key_file: _Path | None = None,
            timeout: int | str = "10s",
        ) -> None: ...

    def _url(self) -> str | None:
        return self.url

    @model_validator(mode="after")
    def _keep_token(self) -> Self:
        if self.token is not None:
            remember(Secret(self.token))
        if self.url is None and (unused := self._of_requests()) is not None:
            raise complaint_error("is of requests to url, and there is none", remedy="Give url, or take it out.", at=(unused,))
        return self


GivenTarget: TypeAlias = EventTarget | Mapping[str, Any]
