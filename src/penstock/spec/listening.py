"""Settings of what listens: `penstock receive`, and the metrics of a driver."""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.spec.complaint import complaint_error
from penstock.spec.place import FilePath
from penstock.spec.settings import Settings
from penstock.support.listening import host_and_port, is_loopback
from penstock.support.secret import Secret, remember, scheme_only


def _listen(value: str) -> str:
    try:
        host_and_port(value)
    except ValueError:
        raise complaint_error("should be HOST:PORT", remedy="Write 127.0.0.1:8080, or 0.0.0.0:8080 for every address.") from None
    return value


def _broker(value: str) -> str:
    try:
        host_and_port(value)
    except ValueError:
        # A URL is not shown whole: it can hold a password.
        found = f", found {scheme_only(value)}" if "://" in value else ""
        wrong = f"should be HOST:PORT of the broker{found}"
        raise complaint_error(wrong, remedy="Write it like broker.example.com:5672.") from None
    return value


Broker = Annotated[str, AfterValidator(_broker), WithJsonSchema({"type": "string", "examples": ["broker.example.com:5672"]})]
"""The address and the port of a broker."""

Listen = Annotated[str, AfterValidator(_listen), WithJsonSchema({"type": "string", "examples": ["127.0.0.1:8080"]})]
"""An address and a port; port 0 takes a free one."""


class ServerTls(Settings):
    """The certificate that clients see."""

    certificate_file: FilePath = Field(description="PEM file with the certificate, and those between it and its authority.")
    key_file: FilePath = Field(description="PEM file with its key, without a password.")

    if TYPE_CHECKING:

        def __init__(self, *, certificate_file: str | PathLike[str], key_file: str | PathLike[str]) -> None: ...


class GuardedEndpoint(Settings):
    """What shows something to whoever has the token."""

    listen: Listen = Field(description="`HOST:PORT`; port 0 takes a free one.")
    token: str | None = Field(
        default=None, min_length=1, description="What whoever asks must send, as `${VARIABLE}`. Probes of health need none."
    )
    without_token: bool = Field(
        default=False, description="Answer everyone who reaches an address of the network, because it keeps others out."
    )
    tls: ServerTls | None = Field(default=None, description="Without it, what is served is not encrypted.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            listen: str,
            token: str | None = None,
            without_token: bool = False,
            tls: ServerTls | Mapping[str, Any] | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _others_are_kept_out(self) -> Self:
        if self.token is not None:
            remember(Secret(self.token))
        elif not self.without_token and not is_loopback(host_and_port(self.listen)[0]):
            raise complaint_error(
                f"shows {self._shown} to everyone who reaches that address",
                remedy="Give a token, or without_token: true where the network itself keeps others out.",
            )
        return self

    @property
    def _shown(self) -> str:
        return "where the pipeline stands"


class MetricsEndpoint(GuardedEndpoint):
    """Metrics and health of a driver while it runs, for Prometheus and for probes, as `penstock metrics` serves them."""
