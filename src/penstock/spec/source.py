"""Settings of a source: anything that Spark can read as a stream."""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.spec.chain_options import chain_complaints
from penstock.spec.complaint import Complaint, complaint_error, complaints_error, described
from penstock.spec.endpoint import Token, Url
from penstock.spec.file_options import file_complaints
from penstock.spec.journal_options import journal_complaints
from penstock.spec.kafka_options import (
    TOPICS,
    ConnectionString,
    hubs_of,
    kafka_complaints,
    python_complaints,
    secrets_in,
    single_topic,
)
from penstock.spec.kinesis_options import kinesis_complaints
from penstock.spec.place import SourcePath, local_path
from penstock.spec.receive import ClientTls
from penstock.spec.registry import Decode, require_subjects
from penstock.spec.rule import Rule, ShortRule
from penstock.spec.scalar import Duration, Name
from penstock.spec.settings import Settings
from penstock.spec.sql import SQL
from penstock.support.secret import Secret, remember, remember_options

FILE_FORMATS = frozenset({"avro", "binaryFile", "csv", "json", "orc", "parquet", "text", "xml"})
"""Formats that read files below `path`."""
_FILES = frozenset(name.lower() for name in FILE_FORMATS)


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Secret):
        return value
    if isinstance(value, str | int | float):
        return str(value)
    raise complaint_error(
        f"should be a text, a number, true or false, found {described(value)}", remedy="Write the value as Spark takes it."
    )


def _remembered(options: Mapping[str, str]) -> Mapping[str, str]:
    remember_options(options)
    return options


Option = Annotated[str, PlainValidator(_option), WithJsonSchema({"type": ["string", "number", "boolean"]})]
"""An option's value; numbers and booleans become the text that Spark expects."""

Options = Annotated[Mapping[str, Option], AfterValidator(_remembered)]
"""Options by name, whose secrets no text shows from then on."""


def _receiver_url(value: str) -> str:
    if "?" in value or not value.isascii():
        raise complaint_error(
            "should be the address of a receiver, and has a query or what is not ASCII", remedy="Write it like https://one:8081."
        )
    return value


def _urls(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Urls = Annotated[
    tuple[Annotated[Url, AfterValidator(_receiver_url)], ...],
    BeforeValidator(_urls),
    Field(strict=False),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""One address, or several."""

OnGap = Literal["fail", "wait", "accept"]
Reader = Literal["auto", "spark", "python"]


class Watermark(Settings):
    """How long to wait for late rows: what lets Spark forget the state of aggregations, joins and deduplication."""

    column: str = Field(min_length=1, description="The timestamp column that tells a row's event time.")
    delay: Duration = Field(description="How late a row may be, such as `10m`.")

    if TYPE_CHECKING:

        def __init__(self, *, column: str, delay: int | str) -> None: ...


class Source(Settings):
    """One replayable input, read by Spark Structured Streaming."""

    format: str | None = Field(
        default=None,
        min_length=1,
        description="Spark's name of the format: a file format (`csv`, `json`, `parquet`, `orc`, `text`, …), `rate`, "
        "`rate-micro-batch`, `kafka`, `kinesis`, `journal`, `penstock`, `delta`, or any other that Spark can replay.",
    )
    path: SourcePath | None = Field(
        default=None,
        description="Directory that file formats read new files from; wildcards and every URL that Spark knows are allowed. For "
        "`journal` the directory of a journal, or with wildcards those of several; for `penstock` the file of the pipeline whose "
        "table is read.",
    )
    url: Urls = Field(
        default=(),
        description="`journal` only, in place of `path`: the address of a receiver's `read`, or a list of several, where driver "
        "or executors do not see the directory.",
    )
    token: Token | None = Field(default=None, description="`journal` only: the token of `receive.read`, as `${VARIABLE}`.")
    tls: ClientTls | None = Field(
        default=None, description="`journal` only: whom to trust at a `url` with https. Driver and executors read these files."
    )
    table: str | None = Field(default=None, min_length=1, description="Table to stream from, in place of `format` and `path`.")
    schema_ddl: SQL | None = Field(
        default=None,
        alias="schema",
        description="Columns as DDL (`year INT, origin STRING`) or as Spark's schema JSON. File formats need it.",
    )
    options: Options = Field(
        default_factory=dict,
        description="Options of the format, passed to Spark as they are; what is added for `kafka`, or refused, says its page. "
        "`kinesis` has its own: `streamName`, `startingPosition`, `region` and more.",
    )
    watermark: Watermark | None = Field(default=None, description="Event-time watermark to put on the source.")
    on_gap: OnGap = Field(
        default="fail",
        description="`kafka` only: what to do where the broker no longer has records that were not delivered: stop (`fail`), "
        "`wait` for them, or go on without them and note in the ledger which are lost (`accept`).",
    )
    reader: Reader = Field(
        default="auto",
        description="`kafka` only: what reads the records: Spark's connector, which is a jar (`spark`); Penstock's own reader, "
        "which needs Spark 4.2 and no jar (`python`); or the connector where it can be had, and else the reader (`auto`). Each "
        "goes on where the other stopped.",
    )
    mirror_offsets_to: str | None = Field(
        default=None,
        min_length=1,
        description="`kafka` only: a consumer group that shows, for lag tools, what is delivered; Penstock never reads it.",
    )
    connection_string: ConnectionString | None = Field(
        default=None,
        description="`kafka` only: of Azure Event Hubs, in place of the brokers and credentials in `options`: `${VARIABLE}`. The "
        "event hub that it names by EntityPath is read unless `options` name others.",
    )
    client: Options = Field(
        default_factory=dict,
        description="`kafka` only: properties of librdkafka for Penstock's own looks at the brokers, where they do not follow "
        "from the options `kafka.…`.",
    )

    decode: Decode | None = Field(
        default=None,
        description="`kafka` only: keys and values that were written by schemas of a registry, and become typed columns.",
    )
    expect: Mapping[Name, ShortRule] = Field(
        default_factory=dict,
        description="Rules that the rows of the source have to meet before the transform, by name: a Spark SQL predicate, or a "
        "mapping as below. For `kafka`, and for file formats.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            format: str | None = None,  # noqa: A002 - the key's name
            path: str | PathLike[str] | None = None,
            url: str | list[str] | tuple[str, ...] = (),
            token: str | None = None,
            tls: ClientTls | Mapping[str, Any] | None = None,
            table: str | None = None,
            schema: str | None = None,
            options: Mapping[str, str | float | bool] = ...,
            watermark: Watermark | Mapping[str, Any] | None = None,
            on_gap: OnGap = "fail",
            reader: Reader = "auto",
            mirror_offsets_to: str | None = None,
            connection_string: str | None = None,
            client: Mapping[str, str | float | bool] = ...,
            decode: Decode | Mapping[str, Any] | None = None,
            expect: Mapping[str, Rule | str | Mapping[str, Any]] = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _reached_by_connection_string(cls, given: Any) -> Any:
        """Add brokers and credentials of the `connection_string`, and its topic unless the options name any."""
        if not isinstance(given, Mapping) or not given.get("connection_string"):
            return given
        options = given.get("options") or {}
        hubs = hubs_of({**options, **given}, instead_of=("kafka.bootstrap.servers",))
        chosen = {name.lower() for name in options} & {name.lower() for name in TOPICS}
        named = {"subscribe": hubs.hub} if hubs.hub and not chosen else {}
        return {**given, "options": {**hubs.spark_options, "kafka.bootstrap.servers": hubs.bootstrap, **named, **options}}

    @model_validator(mode="after")
    def _one_kind_of_input(self) -> Self:
        if self.table is None and self.format is None:
            raise complaint_error("has neither format nor table", remedy="Add format: csv (or another format), or table: name.")
        if self.table is not None and (self.format is not None or self.path is not None):
            raise complaint_error(
                "has a table and also format or path", remedy="Keep either table, or format and path.", at=("table",)
            )
        if self.format in FILE_FORMATS and self.path is None:
            raise complaint_error(f"reads files ({self.format}) but has no path", remedy="Add path: ./incoming.")
        return self

    @model_validator(mode="after")
    def _options_are_right(self) -> Self:
        kind = (self.format or "").lower()
        found = self._of_kafka() if kind == "kafka" else self._only_for_kafka()
        found += self._of_journal() if kind == "journal" else self._only_for_journal()
        found += self._of_chain() if kind == "penstock" else []
        found += self._of_kinesis() if kind == "kinesis" else []
        if self.expect and kind != "kafka" and kind not in _FILES:
            remedy = f"Filter in the transform; rules go with kafka, {', '.join(sorted(FILE_FORMATS))}."
            message = f"does not go with {f'format: {self.format}' if self.format else 'table'}"
            found.append(Complaint(message=message, remedy=remedy, at=("expect",)))
        if kind in _FILES:
            found += [complaint.below(("options",)) for complaint in file_complaints(kind, self.options)]
        if found:
            raise complaints_error(found)
        if self.decode is not None:
            require_subjects(self.decode, single_topic(self.options))
        return self

    def _of_kafka(self) -> list[Complaint]:
        for secret in secrets_in(self.options):
            remember(Secret(secret))
        given = [key for key, value in (("schema", self.schema_ddl), ("path", self.path)) if value is not None]
        fixed = "Take it out: the columns are key, value, topic, partition, offset, timestamp, timestampType (and headers)."
        found = [Complaint(message="does not go with format: kafka", remedy=fixed, at=(key,)) for key in given]
        of_options = [*kafka_complaints(self.options), *(python_complaints(self.options) if self.reader == "python" else ())]
        found += [complaint.below(("options",)) for complaint in of_options]
        return found

    def _of_journal(self) -> list[Complaint]:
        found = [complaint.below(("options",)) for complaint in journal_complaints(self.options)]
        if self.schema_ddl is not None:
            remedy = "Take it out: the columns are value, key, headers, producer, sequence, received_at, remote and two more."
            found.append(Complaint(message="does not go with format: journal", remedy=remedy, at=("schema",)))
        found += [Complaint(message="is for url only", remedy="Take it out.", at=(key,)) for key in self._given_for_urls()]
        if self.path is None and not self.url:
            remedy = "Add path: ./journal, or url: with the address of receive.read."
            found.append(Complaint(message="reads a journal but has neither path nor url", remedy=remedy, at=()))
        elif self.path is not None and self.url:
            found.append(Complaint(message="is there beside path", remedy="Keep one of them.", at=("url",)))
        elif self.tls is not None and any(url.startswith("http:") for url in self.url):
            message = "is given, but a url begins with http://, where nothing is encrypted"
            found.append(Complaint(message=message, remedy="Write https://, or take tls out.", at=("tls",)))
        elif self.path is not None and local_path(self.path) is None:
            message = "should be a directory on this machine or mounted on it"
            found.append(Complaint(message=message, remedy="Name the path where the receiver writes.", at=("path",)))
        return found

    def _of_chain(self) -> list[Complaint]:
        found = [complaint.below(("options",)) for complaint in chain_complaints(self.options, path=self.path)]
        if self.path is None:
            found.append(
                Complaint(message="reads a pipeline but has no path", remedy="Add path: ./flights.yaml, its file.", at=())
            )
        elif local_path(self.path) is None:
            message = "should be a pipeline file on this machine"
            found.append(Complaint(message=message, remedy="Its accounts and ledger may be anywhere.", at=("path",)))
        return found

    def _of_kinesis(self) -> list[Complaint]:
        found = [complaint.below(("options",)) for complaint in kinesis_complaints(self.options)]
        given = [key for key, value in (("schema", self.schema_ddl), ("path", self.path)) if value is not None]
        fixed = "Take it out: the columns are data, partition_key, sequence_number and four more."
        return [*found, *(Complaint(message="does not go with format: kinesis", remedy=fixed, at=(key,)) for key in given)]

    def _given_for_urls(self) -> list[str]:
        """Return the keys that are given, and that make sense with a `url` only, if there is none."""
        given = (("token", self.token), ("tls", self.tls))
        return [] if self.url else [key for key, value in given if value is not None]

    def _only_for_journal(self) -> list[Complaint]:
        given = ["url"] if self.url else self._given_for_urls()
        return [Complaint(message="is for format: journal only", remedy="Take it out.", at=(key,)) for key in given]

    @property
    def puts_aside(self) -> bool:
        """Whether undecodable records go into the quarantine, for which they are read once more."""
        return self.decode is not None and self.decode.undecodable == "quarantine"

    @property
    def is_read_again(self) -> bool:
        """Whether each batch is read once more beside the query."""
        return self.puts_aside or bool(self.expect)

    def _only_for_kafka(self) -> list[Complaint]:
        ours = (
            ("on_gap", self.on_gap != "fail"),
            ("reader", self.reader != "auto"),
            ("mirror_offsets_to", self.mirror_offsets_to),
            ("client", self.client),
            ("connection_string", self.connection_string),
            ("decode", self.decode),
        )
        given = [key for key, value in ours if value]
        return [Complaint(message="is for format: kafka only", remedy="Take it out.", at=(key,)) for key in given]
