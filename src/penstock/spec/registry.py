"""Settings of a schema registry, and of the keys and values that are written by its schemas."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.registry.semantic_type import AMBIGUOUS
from penstock.registry.unavailable import PLACEHOLDER, octets
from penstock.spec.complaint import Complaint, complaint_error, complaints_error, described
from penstock.spec.place import FilePath
from penstock.spec.scalar import Duration
from penstock.spec.settings import Settings, nearest
from penstock.spec.sql import SQL
from penstock.support.secret import Secret, remember, scheme_only

_URL = re.compile(r"https?://([^\s/@,:?#]+|\[[0-9a-fA-F:.]+\])(:\d+)?(/[^\s,?#]*)?")

SEMANTIC_TYPES = tuple(dict.fromkeys(name for names in AMBIGUOUS.values() for name in names))
"""What a user can name for a column of change events in JSON."""
Format: TypeAlias = Literal["avro", "json", "protobuf"]
OnUndecodable: TypeAlias = Literal["fail", "quarantine"]


def _urls(value: str) -> str:
    given = [url.strip() for url in value.split(",")]
    if "@" in value:
        raise complaint_error("holds a user", remedy="Write it as `user` and `password` beside `url`, best as ${VARIABLE}.")
    if not all(map(_URL.fullmatch, given)):
        raise complaint_error(
            f"should be the URL of a schema registry, found {scheme_only(value)}",
            remedy="Write it like http://registry:8081; several of one registry with commas in between.",
        )
    return value


Urls = Annotated[str, AfterValidator(_urls), WithJsonSchema({"type": "string", "pattern": "^https?://"})]
"""One or several URLs of one registry."""


def _unavailable(value: str) -> str:
    try:
        found = octets(value)
    except ValueError:
        found = b""
    if not found:
        remedy = "Copy unavailable.value.placeholder of the connector."
        raise complaint_error(f"should have pairs of hexadecimal digits behind hex:, found {described(value)}", remedy=remedy)
    return value


UnavailableValue = Annotated[str, AfterValidator(_unavailable)]
"""A text, or bytes in hex behind `hex:`."""


class Registry(Settings):
    """A schema registry that speaks Confluent's protocol: Confluent's, Karapace, Apicurio, Redpanda."""

    url: Urls = Field(
        description="Such as `http://registry:8081`; several of one registry with commas in between. Apicurio's ends in "
        "`/apis/ccompat/v7`."
    )
    user: str | None = Field(default=None, min_length=1, description="For HTTP basic authentication; with `password`.")
    password: str | None = Field(default=None, min_length=1, description="As `${VARIABLE}`.")
    token: str | None = Field(default=None, min_length=1, description="A bearer token in place of `user`, as `${VARIABLE}`.")
    ca_file: FilePath | None = Field(
        default=None, description="PEM file of the authorities to trust with `https`; by default those that `requests` trusts."
    )
    certificate_file: FilePath | None = Field(
        default=None, description="PEM file with our own certificate, where the registry asks for one."
    )
    key_file: FilePath | None = Field(default=None, description="PEM file with its key, if that is not in the same file.")
    timeout: Duration = Field(default=10_000, description="How long to wait for an answer.", json_schema_extra={"default": "10s"})

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str,
            user: str | None = None,
            password: str | None = None,
            token: str | None = None,
            ca_file: str | None = None,
            certificate_file: str | None = None,
            key_file: str | None = None,
            timeout: int | str = "10s",
        ) -> None: ...

    @model_validator(mode="after")
    def _let_in_one_way(self) -> Self:
        for secret in (self.password, self.token):
            if secret is not None:
                remember(Secret(secret))
        if (self.user is None) != (self.password is None):
            raise complaint_error("has one of user and password", remedy="Give both, or neither.")
        if self.user is not None and self.token is not None:
            raise complaint_error("is given together with user", remedy="Keep one of them.", at=("token",))
        if self.key_file is not None and self.certificate_file is None:
            raise complaint_error("is there without certificate_file", remedy="Add certificate_file.", at=("key_file",))
        return self


class Coded(Settings):
    """How a key or a value is written."""

    format: Format = Field(description="`avro`, `json` (by a JSON Schema), or `protobuf`.")
    subject: str | None = Field(
        default=None,
        min_length=1,
        description="The registry's name for its schemas. Left out, that of the topic: `<topic>-value` or `<topic>-key`.",
    )
    version: int | None = Field(
        default=None, ge=1, description="Which of the subject's schemas is read by; left out, the newest at the start."
    )

    @property
    def names_schema(self) -> bool:
        """Whether each value names the registry's schema by which it was written."""
        return True


ShortCoded = Annotated[
    Coded,
    BeforeValidator(lambda value: {"format": value} if isinstance(value, str) else value, json_schema_input_type=Format | Coded),
]
"""A format, or a mapping of format, subject and version."""


class DecodedValue(Coded):
    """How a value is written that a source decodes."""

    envelope: Literal["debezium"] | None = Field(
        default=None,
        description="`debezium`: values are change events. `value` becomes the changed row, and the column `change` says how it "
        "changed. With `format` `avro` or `json`.",
    )
    schema_ddl: SQL | None = Field(
        default=None,
        alias="schema",
        description="With `envelope` and `json`: the columns to read, as DDL (`id INT, name STRING`) or as Spark's schema JSON.",
    )
    semantic_types: Mapping[str, str] = Field(
        default_factory=dict,
        description="With `envelope` and `json`: the semantic types of columns that the values do not name by a `schema` of "
        "their own, such as `{created: io.debezium.time.MicroTimestamp}`.",
    )
    unavailable_value: UnavailableValue = Field(
        default=PLACEHOLDER,
        min_length=1,
        description="With `envelope`: the connector's `unavailable.value.placeholder`, which no row gets as a value.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            format: Format,  # noqa: A002 - the key's name
            subject: str | None = None,
            version: int | None = None,
            envelope: Literal["debezium"] | None = None,
            schema: str | None = None,
            semantic_types: Mapping[str, str] = ...,
            unavailable_value: str = PLACEHOLDER,
        ) -> None: ...

    @property
    def names_schema(self) -> bool:
        return self.envelope is None or self.format != "json"

    @model_validator(mode="after")
    def _envelope_is_read(self) -> Self:
        found = list(self._of_envelope() if self.envelope is not None else self._without_envelope())
        if found:
            raise complaints_error(found)
        return self

    def _without_envelope(self) -> Iterator[Complaint]:
        ours = ("schema", self.schema_ddl), ("semantic_types", self.semantic_types)
        for key in (key for key, value in ours if value):
            yield Complaint(message="is there without envelope", remedy="Add envelope: debezium, or take it out.", at=(key,))

    def _of_envelope(self) -> Iterator[Complaint]:
        if self.format == "protobuf":
            message = "is protobuf, and change events are read as json or avro"
            yield Complaint(message=message, remedy="Take format: avro, and the connector's AvroConverter.", at=("format",))
        elif self.format == "avro":
            ours = ("schema", self.schema_ddl), ("semantic_types", self.semantic_types)
            for key in (key for key, value in ours if value):
                yield Complaint(message="is given, and Avro's schema has it", remedy="Take it out.", at=(key,))
        else:
            yield from self._of_json()

    def _of_json(self) -> Iterator[Complaint]:
        if self.schema_ddl is None:
            remedy = 'Add schema: "id INT, name STRING" with the columns of the table.'
            yield Complaint(message="reads change events as json, and has no schema", remedy=remedy)
        for key in (key for key in ("subject", "version") if getattr(self, key) is not None):
            message = "is given, and change events in json are read by `schema`, not by a registry"
            yield Complaint(message=message, remedy="Take it out.", at=(key,))
        for column, name in self.semantic_types.items():
            if name not in SEMANTIC_TYPES:
                message = f"should be a semantic type of dates, times or decimals, found {described(name)}"
                known = nearest(name, SEMANTIC_TYPES)
                remedy = f"Did you mean {known}?" if known else f"Write one of {', '.join(SEMANTIC_TYPES)}."
                yield Complaint(message=message, remedy=remedy, at=("semantic_types", column))


def _decoded_value(value: Any) -> Any:
    if type(value) is Coded:
        return {"format": value.format, "subject": value.subject, "version": value.version}
    return {"format": value} if isinstance(value, str) else value


ShortDecodedValue = Annotated[DecodedValue, BeforeValidator(_decoded_value, json_schema_input_type=Format | DecodedValue)]
"""A format, or a mapping."""


class ByRegistry(Settings):
    """Base of `Decode` and `Encode`: keys and values that are written by schemas of a registry."""

    value: ShortCoded | None = None
    key: ShortCoded | None = None
    registry: Registry | None = Field(default=None, description="Where the schemas are.")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.value is None and self.key is None:
            raise complaint_error("names neither value nor key", remedy="Add value: avro.")
        if self.columns and self.registry is None:
            raise complaint_error("has no registry", remedy='Add registry: {url: "${REGISTRY}"}.')
        if self.registry is not None and not self.columns:
            raise complaint_error("is given, and no schema is read from it", remedy="Take it out.", at=("registry",))
        return self

    @property
    def columns(self) -> Mapping[str, Coded]:
        """The settings of `key` and `value`, by column, of those that are written by schemas of the registry."""
        given = {"key": self.key, "value": self.value}
        return {column: coded for column, coded in given.items() if coded is not None and coded.names_schema}


class Decode(ByRegistry):
    """Keys and values that were written by schemas of a registry, or as change events, and become columns with their types."""

    value: ShortDecodedValue | None = Field(
        default=None, description="The value: `avro`, `json`, `protobuf`, or a mapping as below."
    )
    key: ShortCoded | None = Field(default=None, description="The key: as `value`. Left out, it stays bytes.")
    registry: Registry | None = Field(
        default=None, description="Where the schemas are; needed unless `value` is change events in `json`, and `key` left out."
    )
    undecodable: OnUndecodable = Field(
        default="fail",
        description="What to do with a record that cannot be decoded: `fail` the batch, or put it aside (`quarantine`).",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            registry: "Registry | Mapping[str, Any] | None" = None,
            value: "DecodedValue | Coded | str | Mapping[str, Any] | None" = None,
            key: "Coded | str | Mapping[str, Any] | None" = None,
            undecodable: OnUndecodable = "fail",
        ) -> None: ...

    @property
    def changes(self) -> DecodedValue | None:
        """The settings of `value` if it is change events."""
        return self.value if self.value is not None and self.value.envelope is not None else None


class Encode(ByRegistry):
    """Columns that are written by schemas of a registry. Each schema must be registered: nothing is registered by itself."""

    registry: Registry = Field(description="Where the schemas are.")
    value: ShortCoded | None = Field(default=None, description="The column `value`: `avro`, `json`, `protobuf`, or a mapping.")
    key: ShortCoded | None = Field(default=None, description="The column `key`: as `value`. Left out, it is a text or bytes.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            registry: "Registry | Mapping[str, Any]",
            value: "Coded | str | Mapping[str, Any] | None" = None,
            key: "Coded | str | Mapping[str, Any] | None" = None,
        ) -> None: ...


def require_subjects(decode: ByRegistry, topic: str | None, *, at: str = "decode") -> None:
    """Raise pydantic's custom error if a subject is missing and `topic` is None: several topics or a pattern give none."""
    missing = [column for column, coded in decode.columns.items() if coded.subject is None] if topic is None else []
    found = []
    for column in missing:
        example = f"{column}: {{format: {decode.columns[column].format}, subject: NAME}}"
        remedy = f"Write {example}; that one's schema is for all records."
        message = "names no subject, and there may be several topics"
        found.append(Complaint(message=message, remedy=remedy, at=(at, column)))
    if found:
        raise complaints_error(found)
