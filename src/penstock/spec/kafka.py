"""Settings of the Kafka sink."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from penstock.spec.complaint import complaint_error, described
from penstock.spec.kafka_options import ConnectionString, hubs_of
from penstock.spec.location import Columns, GivenColumns, as_tuple
from penstock.spec.registry import Encode, require_subjects
from penstock.spec.scalar import Duration, Size
from penstock.spec.selection import DeletesRows
from penstock.spec.settings import OneKey
from penstock.spec.source import Options
from penstock.spec.sql import SQL
from penstock.support.secret import scheme_only

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVERS = re.compile(r"[^\s,/@]+:\d+(,[^\s,/@]+:\d+)*")
_LEAST_TIMEOUT_MS = 1_000
_ALL = "all"
_OF_COLUMNS = "value: {json: [columns]} or value: {column: name}"

OWN_OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("bootstrap.servers", "metadata.broker.list"), "Use `bootstrap`."),
    "transaction.timeout.ms": "Use `transaction_timeout`.",
    **dict.fromkeys((
        "transactional.id", "enable.idempotence", "enable.gapless.guarantee", "acks", "request.required.acks", "max.in.flight",
        "max.in.flight.requests.per.connection", "message.send.max.retries", "retries", "message.timeout.ms",
        "delivery.timeout.ms", "message.max.bytes", "allow.auto.create.topics", "isolation.level", "group.id",
        "group.instance.id", "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof",
        "check.crcs",
    ), "Take it out: exactly-once delivery rests on it."),
}  # fmt: skip
"""Client options that a user may not give, each with the remedy."""


def _topic(value: str) -> str:
    if not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise complaint_error(
            f"should be the name of a topic, found {described(value)}",
            remedy="Use up to 249 letters, digits, dots, hyphens and `_`.",
        )
    return value


def _servers(value: str) -> str:
    if not _SERVERS.fullmatch(value):
        raise complaint_error(
            f"should name brokers, found {scheme_only(value)}", remedy="Write it like broker1:9092,broker2:9092."
        )
    return value


TopicName = Annotated[str, AfterValidator(_topic), WithJsonSchema({"type": "string", "pattern": f"^{_TOPIC.pattern}$"})]
"""Name of a topic."""

Servers = Annotated[str, AfterValidator(_servers), WithJsonSchema({"type": "string", "pattern": f"^{_SERVERS.pattern}$"})]
"""Some brokers of a cluster."""


def _columns_of_json(value: Any) -> Any:
    """Return columns as a tuple; an empty one stands for `all`."""
    if value == _ALL:
        return ()
    if value in ([], ()):
        raise complaint_error(
            "should name at least one column", remedy="Write json: [column, column], or value: json for all of them."
        )
    return as_tuple(value)


def _value(value: Any) -> Any:
    if isinstance(value, str):
        if value != "json":
            raise complaint_error(
                f"should be json, or say how, found {described(value)}", remedy=f"Write value: json, {_OF_COLUMNS}."
            )
        return {"json": _ALL}
    return value


class RecordValue(OneKey):
    """What a record's value is made of. Exactly one of the keys."""

    json_of: Annotated[Columns, BeforeValidator(_columns_of_json, json_schema_input_type=list[str] | Literal["all"])] | None = (
        Field(default=None, alias="json", description="Columns that become one JSON object, in this order; `all` of them.")
    )
    column: str | None = Field(
        default=None, min_length=1, description="A column that is the value: text, bytes or a plain value."
    )

    if TYPE_CHECKING:

        def __init__(self, *, json: GivenColumns | Literal["all"] | None = None, column: str | None = None) -> None: ...

    def _not_one(self, given: Sequence[str]) -> PydanticCustomError:  # noqa: ARG002 - one complaint for none and for both
        return complaint_error("should have json or column", remedy=f"Write value: json, {_OF_COLUMNS}.")


Value = Annotated[RecordValue, BeforeValidator(_value, json_schema_input_type=Literal["json"] | RecordValue)]
"""A record's value, or just `json`: all columns as one object."""


class Kafka(DeletesRows):
    """Topics of Kafka: rows and marker in one transaction. Columns: `value`; if wanted `key`, `headers`, `partition`, `topic`."""

    type: Literal["kafka"] = Field(default="kafka", description="`kafka`: topics of Kafka.")
    bootstrap: Servers = Field(default="", description="Some brokers of the cluster: `broker1:9092,broker2:9092`.")
    connection_string: ConnectionString | None = Field(
        default=None,
        description="Of Azure Event Hubs, in place of `bootstrap` and of credentials in `options`: `${VARIABLE}`.",
    )
    topic: TopicName = Field(
        default="",
        description="The topic, which must exist. A column `topic` may name another one for a row. Without it, the event hub "
        "that `connection_string` names by EntityPath.",
    )
    topics: Columns = Field(default=(), description="All other topics that the column `topic` may name; they must exist.")
    options: Options = Field(
        default_factory=dict,
        description="Keys of librdkafka's client, such as `security.protocol` or `compression.type`; secrets as `${VARIABLE}`. "
        "Keys that the guarantee rests on are refused.",
    )
    mode: Literal["transactional", "keyed"] = Field(
        default="transactional",
        description="`transactional`: exactly once for whoever reads what is committed. `keyed`: at least once, without "
        "transactions; the header `penstock-id` of a record is the same at every repetition, for readers that tell them apart.",
    )
    lanes: int = Field(
        default=1, ge=1, le=64, description="Into how many transactions a batch is divided that are written side by side."
    )
    marker_topic: TopicName | None = Field(
        default=None,
        description="The compacted topic of the markers, for this sink alone; created if it is missing. Without it, "
        "`penstock.<pipeline>.<sink>`.",
    )
    transaction_size: Size = Field(
        default=1_000_000_000,
        description="A lane's share of a batch that is larger goes into several transactions, one after the other.",
        json_schema_extra={"default": "1GB"},
    )
    transaction_timeout: Duration = Field(
        default=60_000,
        description="When brokers end a transaction whose driver is gone, so that readers wait no longer. One is committed and "
        "another begun when half of that has passed.",
        json_schema_extra={"default": "1m"},
    )
    value: Value | None = Field(
        default=None,
        description="Where the pipeline's rows are no records: `json` for all columns as one JSON object, `{json: [columns]}` "
        "for some, `{column: name}` for a column as it is. Without it rows have the columns of records.",
    )
    key: str | None = Field(default=None, min_length=1, description="With `value`: the column that is a record's key.")
    delete_when: SQL | None = Field(
        default=None,
        description="A Spark SQL predicate. A row for which it is true becomes a tombstone, a record of its key without a value. "
        "It may use columns that are not written.",
    )
    headers: str | None = Field(default=None, min_length=1, description="With `value`: the column of a record's headers.")
    partition: str | None = Field(default=None, min_length=1, description="With `value`: the column of a record's partition.")
    encode: Encode | None = Field(
        default=None,
        description="Columns that are written by schemas of a registry; they may have any type that the schema has.",
    )
    shared: bool = Field(
        default=False,
        description="Other programs write to these topics, too: `verify` compares the markers, and reads no records.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            bootstrap: str = "",
            connection_string: str | None = None,
            topic: str = "",
            topics: GivenColumns = (),
            options: Mapping[str, Any] = ...,
            mode: Literal["transactional", "keyed"] = "transactional",
            lanes: int = 1,
            marker_topic: str | None = None,
            transaction_size: int | str = "1GB",
            transaction_timeout: int | str = "1m",
            value: "RecordValue | Mapping[str, Any] | str | None" = None,
            key: str | None = None,
            delete_when: str | None = None,
            headers: str | None = None,
            partition: str | None = None,
            encode: "Encode | Mapping[str, Any] | None" = None,
            shared: bool = False,
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _reached_by_connection_string(cls, given: Any) -> Any:
        """Add brokers and credentials of the `connection_string`, and its topic unless the settings name one."""
        if not isinstance(given, Mapping) or not given.get("connection_string"):
            return given
        hubs = hubs_of(given, instead_of=("bootstrap",))
        named = {"topic": hubs.hub} if hubs.hub and not given.get("topic") else {}
        return {**given, **named, "bootstrap": hubs.bootstrap, "options": {**hubs.options, **(given.get("options") or {})}}

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Self:
        if not self.bootstrap:
            raise complaint_error("names no brokers", remedy="Add bootstrap: broker1:9092, or connection_string: of Event Hubs.")
        if self.encode is not None:
            require_subjects(self.encode, None if self.topics else self.topic, at="encode")
        if not self.topic:
            raise complaint_error("names no topic", remedy="Add topic: name; or EntityPath to `connection_string`.")
        return self

    @model_validator(mode="after")
    def _records_are_made_in_one_way(self) -> Self:
        made = next(
            (name for name in ("value", "key", "headers", "partition", "encode") if getattr(self, name) is not None), None
        )
        if made is not None and (self.select or self.exclude):
            raise complaint_error(
                f"is given, and {made} as well, which makes the records of the rows",
                remedy=f"Leave it out, and name in {made} what is to be written; or make the columns value and key by select.",
                at=("select" if self.select else "exclude",),
            )
        return self

    @model_validator(mode="after")
    def _own_options_are_ours(self) -> Self:
        for key in self.options:
            if key in OWN_OPTIONS:
                raise complaint_error("is not an option of yours", remedy=OWN_OPTIONS[key], at=("options", key))
        return self

    @model_validator(mode="after")
    def _records_are_said_wholly(self) -> Self:
        given = next((name for name in ("key", "headers", "partition") if getattr(self, name) is not None), None)
        if self.value is None and given is not None:
            raise complaint_error("goes with `value`, which is missing", remedy=f"Add value: json, {_OF_COLUMNS}.", at=(given,))
        if self.value is not None and self.topics:
            raise complaint_error(
                "go with a column `topic` of the rows, which `value` leaves out",
                remedy="Take `value` out and select key, value and topic in the transform.",
                at=("topics",),
            )
        if self.value is not None and self.encode is not None:
            raise complaint_error(
                "does not go with `value`: what is encoded are the columns of records that the transform selects",
                remedy="Take `value` out and select key and value in the transform, or take `encode` out.",
                at=("encode",),
            )
        return self

    @model_validator(mode="after")
    def _deletes_by_key(self) -> Self:
        if self.delete_when is not None and self.value is not None and self.key is None:
            raise complaint_error(
                "is given, but the records have no key, by which a row deletes", remedy="Add key: column.", at=("delete_when",)
            )
        if self.delete_when is not None and self.encode is not None:
            raise complaint_error(
                "does not go with `encode`: it would be computed from columns that are encoded by then",
                remedy="Select NULL as value in the transform, with its type: such a row becomes a tombstone.",
                at=("delete_when",),
            )
        return self

    @model_validator(mode="after")
    def _markers_lie_apart(self) -> Self:
        for name in self.topics:
            _topic(name)
        if self.marker_topic in (self.topic, *self.topics):
            raise complaint_error(
                "is also a topic of the rows", remedy="Give the markers a topic of their own.", at=("marker_topic",)
            )
        if self.transaction_timeout < _LEAST_TIMEOUT_MS:
            raise complaint_error("should be at least 1s", remedy="Write it like 1m.", at=("transaction_timeout",))
        return self

    def is_topic_of(self, other: "Kafka") -> bool:
        """Return whether both sinks fill a common topic, as far as names show, that neither shares with others."""
        mine, theirs = {self.topic, *self.topics}, {other.topic, *other.topics}
        alone = not (self.shared or other.shared)
        return alone and self.bootstrap == other.bootstrap and not mine.isdisjoint(theirs)
