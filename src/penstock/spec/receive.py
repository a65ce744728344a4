"""Settings of `penstock receive`: what it listens on, and the journal that it writes."""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.spec.complaint import Complaint, complaint_error, complaints_error
from penstock.spec.listening import Broker, GuardedEndpoint, Listen, ServerTls
from penstock.spec.place import Directory, FilePath
from penstock.spec.scalar import Duration, Size
from penstock.spec.settings import Settings
from penstock.support.listening import host_and_port, is_loopback
from penstock.support.secret import Secret, remember

_MB = 1_000_000


class _Server(Settings):
    listen: Listen = Field(description="`HOST:PORT`; port 0 takes a free one.")
    tls: ServerTls | None = Field(default=None, description="Without it, what clients send is not encrypted.")
    max_connections: int = Field(default=1_000, ge=1, description="Clients at a time; more are turned away.")
    max_rate: int | None = Field(
        default=None,
        ge=1,
        description="Events a second of all clients together. More are answered by 429 over HTTP, and wait to be read over TCP.",
    )


class _Listener(_Server):
    token: str | None = Field(default=None, min_length=1, description="What clients must show, as `${VARIABLE}`.")

    @property
    def is_open_to_the_network(self) -> bool:
        """Whether others than those of this machine can write without showing who they are."""
        return self.token is None and not is_loopback(host_and_port(self.listen)[0])

    @model_validator(mode="after")
    def _secrets_are_remembered(self) -> Self:
        for secret in (self.token, getattr(self, "password", None)):
            if secret is not None:
                remember(Secret(secret))
        return self


class HttpListener(_Listener):
    """Events by `POST /events`: one, lines of JSON, or an array of JSON, also compressed by gzip."""

    user: str | None = Field(default=None, min_length=1, description="For HTTP basic authentication; with `password`.")
    password: str | None = Field(default=None, min_length=1, description="As `${VARIABLE}`.")
    max_body: Size = Field(default=16 * _MB, description="Largest request, decompressed.", json_schema_extra={"default": "16MB"})
    body_timeout: Duration = Field(
        default=30_000,
        description="How long a client may take to send a request, and from its connection to its first one.",
        json_schema_extra={"default": "30s"},
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            listen: str,
            token: str | None = None,
            tls: ServerTls | Mapping[str, Any] | None = None,
            max_connections: int = 1_000,
            max_rate: int | None = None,
            user: str | None = None,
            password: str | None = None,
            max_body: int | str = ...,
            body_timeout: int | str = ...,
        ) -> None: ...

    @property
    def is_open_to_the_network(self) -> bool:
        return self.user is None and super().is_open_to_the_network

    @model_validator(mode="after")
    def _whole_login(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise complaint_error("has one of user and password", remedy="Give both, or a token.")
        return self


class TcpListener(_Listener):
    """Events as lines of text; each is answered with a line once it is durable."""

    numbered: bool = Field(
        default=False, description="Lines are `PRODUCER NUMBER VALUE`: what a producer sends again is recognised."
    )
    acknowledge: bool = Field(
        default=True,
        description="Whether lines are answered. Without answers a client does not know which lines are durable.",
    )
    max_line: Size = Field(default=_MB, description="Longest line.", json_schema_extra={"default": "1MB"})

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            listen: str,
            token: str | None = None,
            tls: ServerTls | Mapping[str, Any] | None = None,
            max_connections: int = 1_000,
            max_rate: int | None = None,
            numbered: bool = False,
            acknowledge: bool = True,
            max_line: int | str = ...,
        ) -> None: ...


class SyslogListener(_Server):
    """Messages of syslog over TCP (RFC 6587, with TLS RFC 5425). The protocol has no answers."""

    max_message: Size = Field(default=_MB, description="Longest message.", json_schema_extra={"default": "1MB"})

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            listen: str,
            tls: ServerTls | Mapping[str, Any] | None = None,
            max_connections: int = 1_000,
            max_rate: int | None = None,
            max_message: int | str = ...,
        ) -> None: ...


class SyslogUdpListener(Settings):
    """Messages of syslog over UDP (RFC 5426), best effort: what is lost on the way is not known."""

    listen: Listen = Field(description="`HOST:PORT`; port 0 takes a free one.")
    max_rate: int | None = Field(default=None, ge=1, description="Messages a second. More are dropped, and counted.")

    if TYPE_CHECKING:

        def __init__(self, *, listen: str, max_rate: int | None = None) -> None: ...


def _topic(value: str) -> str:
    *before, last = value.split("/")
    if (
        not value
        or any("#" in level for level in before)
        or any(len(level) > 1 and ("#" in level or "+" in level) for level in (*before, last))
    ):
        raise complaint_error(
            f"should be a topic filter, found {value!r}",
            remedy="Write sensors/+/state or sensors/#: + for a level, # for the rest.",
        )
    return value


Topic = Annotated[str, AfterValidator(_topic), WithJsonSchema({"type": "string", "examples": ["sensors/+/state"]})]
"""A topic filter of MQTT."""


class ClientTls(Settings):
    """TLS of a client; `{}` trusts the authorities that the system trusts."""

    ca_file: FilePath | None = Field(default=None, description="PEM file of the authorities to trust instead.")
    certificate_file: FilePath | None = Field(
        default=None, description="PEM file with our own certificate, where one is asked for."
    )
    key_file: FilePath | None = Field(default=None, description="PEM file with its key, if that is not in the same file.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            ca_file: str | PathLike[str] | None = None,
            certificate_file: str | PathLike[str] | None = None,
            key_file: str | PathLike[str] | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _whole_certificate(self) -> Self:
        if self.key_file is not None and self.certificate_file is None:
            raise complaint_error("is there without certificate_file", remedy="Add certificate_file.", at=("key_file",))
        return self


class MqttSubscription(Settings):
    """Messages of an MQTT 5 broker; each is acknowledged once it is durable."""

    broker: Broker = Field(description="`HOST:PORT` of the broker.")
    topics: tuple[Topic, ...] = Field(
        min_length=1, strict=False, description="Topic filters, as `sensors/+/state` or `sensors/#`."
    )
    client_id: str = Field(
        min_length=1, description="Name of the session, in which the broker keeps messages; one receiver has it at a time."
    )
    qos: Literal[1, 2] = Field(
        default=2,
        description="Highest quality of service: messages that were published with QoS 2 are delivered exactly once by 2, and at "
        "least once by 1. A broker that allows no more is subscribed to with 1.",
    )
    user: str | None = Field(default=None, min_length=1, description="Where the broker asks for a login.")
    password: str | None = Field(default=None, min_length=1, description="As `${VARIABLE}`; with `user`.")
    tls: ClientTls | None = Field(default=None, description="Without it, messages and password are not encrypted.")
    session_expiry: Duration = Field(
        default=7 * 86_400_000,
        ge=1_000,
        description="How long the broker keeps messages for a receiver that is away.",
        json_schema_extra={"default": "7d"},
    )
    max_message: Size = Field(
        default=16 * _MB,
        ge=1,
        le=48 * _MB,
        description="Largest message with its topic and properties; brokers leave out larger ones.",
        json_schema_extra={"default": "16MB"},
    )
    max_rate: int | None = Field(default=None, ge=1, description="Messages a second; more wait, at the broker in the end.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            broker: str,
            topics: list[str] | tuple[str, ...],
            client_id: str,
            qos: Literal[1, 2] = 2,
            user: str | None = None,
            password: str | None = None,
            tls: ClientTls | Mapping[str, Any] | None = None,
            session_expiry: int | str = ...,
            max_message: int | str = ...,
            max_rate: int | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _login(self) -> Self:
        if self.password is not None:
            remember(Secret(self.password))
            if self.user is None:
                raise complaint_error("is there without user", remedy="Add user.", at=("password",))
        return self


class AmqpQueue(Settings):
    """A queue of a broker of AMQP 0-9-1, such as RabbitMQ; each message is acknowledged once it is durable."""

    broker: Broker = Field(description="`HOST:PORT` of the broker.")
    queue: str = Field(min_length=1, max_length=255, description="Name of the queue, which must be there, and durable.")
    virtual_host: str = Field(default="/", min_length=1, max_length=255, description="The broker's part in which the queue is.")
    user: str | None = Field(default=None, min_length=1, description="Without it `guest`, whom RabbitMQ takes from its own host.")
    password: str | None = Field(default=None, min_length=1, description="As `${VARIABLE}`; with `user`.")
    tls: ClientTls | None = Field(default=None, description="Without it, messages and password are not encrypted.")
    prefetch: int = Field(
        default=250,
        ge=1,
        le=65_535,
        description="Messages that the broker sends ahead of acknowledgements: as many come again after a lost connection.",
    )
    unique_message_ids: bool = Field(
        default=False,
        description="Whether each message has a `message_id` that no other one has. Then what comes again is recognised among "
        "the newest 100,000 events of the journal.",
    )
    max_rate: int | None = Field(default=None, ge=1, description="Messages a second; more wait, in the queue in the end.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            broker: str,
            queue: str,
            virtual_host: str = "/",
            user: str | None = None,
            password: str | None = None,
            tls: ClientTls | Mapping[str, Any] | None = None,
            prefetch: int = 250,
            unique_message_ids: bool = False,
            max_rate: int | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _login(self) -> Self:
        if self.password is not None:
            remember(Secret(self.password))
        if (self.user is None) != (self.password is None):
            raise complaint_error("has one of user and password", remedy="Give both, or none.")
        return self


class ReadListener(GuardedEndpoint):
    """The journal for pipelines whose driver or executors do not see its directory: sources with a `url`."""

    @property
    def _shown(self) -> str:
        return "all events"


class ReceiverMetrics(GuardedEndpoint):
    """Metrics and health of the receiver, for Prometheus and for probes."""

    @property
    def _shown(self) -> str:
        return "where the receiver stands"


class Receive(Settings):
    """What `penstock receive` listens on, and where it makes events durable before it acknowledges them."""

    journal: Directory = Field(description="Directory of the journal. A receiver writes one; a source reads it by its path.")
    copy_to: Directory | None = Field(
        default=None, description="A second directory, best on another disk, that has every event before it is acknowledged."
    )
    http: HttpListener | None = Field(default=None, description="Listen for HTTP.")
    tcp: TcpListener | None = Field(default=None, description="Listen for lines of text.")
    syslog: SyslogListener | None = Field(default=None, description="Listen for syslog over TCP.")
    syslog_udp: SyslogUdpListener | None = Field(default=None, description="Listen for syslog over UDP.")
    mqtt: MqttSubscription | None = Field(default=None, description="Subscribe to a broker.")
    amqp: AmqpQueue | None = Field(default=None, description="Consume a queue of a broker such as RabbitMQ.")
    read: ReadListener | None = Field(default=None, description="Let pipelines read the journal over HTTP.")
    metrics: ReceiverMetrics | None = Field(default=None, description="Show metrics and health of the receiver.")
    segment_size: Size = Field(
        default=64 * _MB, description="Bytes after which a segment is sealed.", json_schema_extra={"default": "64MB"}
    )
    max_size: Size = Field(
        default=16_000 * _MB,
        description="Bytes that the journal may have; then events are refused until readers released some.",
        json_schema_extra={"default": "16GB"},
    )
    max_age: Duration | None = Field(
        default=None, description="How long events may wait for their readers before new ones are refused."
    )
    keep: Duration = Field(
        default=0, description="How long released segments are kept all the same.", json_schema_extra={"default": "0s"}
    )
    least_free: Size = Field(
        default=64 * _MB,
        description="Bytes that stay free on the disk; then events are refused.",
        json_schema_extra={"default": "64MB"},
    )
    linger: Duration = Field(
        default=0,
        description="How long events wait for others with which they share an fsync. Under load they share it anyway.",
        json_schema_extra={"default": "0s"},
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            journal: str | PathLike[str],
            copy_to: str | PathLike[str] | None = None,
            http: HttpListener | Mapping[str, Any] | None = None,
            tcp: TcpListener | Mapping[str, Any] | None = None,
            syslog: SyslogListener | Mapping[str, Any] | None = None,
            syslog_udp: SyslogUdpListener | Mapping[str, Any] | None = None,
            mqtt: MqttSubscription | Mapping[str, Any] | None = None,
            amqp: AmqpQueue | Mapping[str, Any] | None = None,
            read: ReadListener | Mapping[str, Any] | None = None,
            metrics: ReceiverMetrics | Mapping[str, Any] | None = None,
            segment_size: int | str = ...,
            max_size: int | str = ...,
            max_age: int | str | None = None,
            keep: int | str = ...,
            least_free: int | str = ...,
            linger: int | str = ...,
        ) -> None: ...

    @model_validator(mode="after")
    def _listens(self) -> Self:
        if all(each is None for each in (self.http, self.tcp, self.syslog, self.syslog_udp, self.mqtt, self.amqp)):
            raise complaint_error(
                "listens to nothing", remedy="Add http: {listen: 127.0.0.1:8080}, tcp, syslog, syslog_udp, mqtt or amqp."
            )
        if self.copy_to == self.journal:
            same = Complaint(message="is the journal itself", remedy="Name a directory on another disk.", at=("copy_to",))
            raise complaints_error([same])
        return self
