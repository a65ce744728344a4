"""Settings of a source: anything that Spark can read as a stream."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.secret import Secret, remember_options
from penstock.spec.complaint import wrong
from penstock.spec.describe import described
from penstock.spec.place import SourcePath
from penstock.spec.quantity import Duration
from penstock.spec.settings import Settings

FILE_FORMATS = frozenset({"avro", "binaryFile", "csv", "json", "orc", "parquet", "text", "xml"})
"""Formats that read files below `path`."""


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Secret):
        return value
    if isinstance(value, str | int | float):
        return str(value)
    raise wrong(
        f"should be a text, a number, true or false, found {described(value)}", remedy="Write the value as Spark takes it."
    )


Option = Annotated[str, PlainValidator(_option), WithJsonSchema({"type": ["string", "number", "boolean"]})]
"""An option's value; numbers and booleans become the text that Spark expects."""


class Watermark(Settings):
    """How long to wait for late rows: what lets Spark forget the state of aggregations, joins and deduplication."""

    column: str = Field(min_length=1, description="The timestamp column that tells a row's event time.")
    delay: Duration = Field(description="How late a row may be, such as `10m`.")


class Source(Settings):
    """One replayable input, read by Spark Structured Streaming."""

    format: str | None = Field(
        default=None,
        min_length=1,
        description="Spark's name of the format: a file format (`csv`, `json`, `parquet`, `orc`, `text`, …), `rate`, "
        "`rate-micro-batch`, `kafka`, `delta`, or any other that Spark can replay.",
    )
    path: SourcePath | None = Field(
        default=None,
        description="Directory that file formats read new files from; wildcards and every URL that Spark knows are allowed.",
    )
    table: str | None = Field(default=None, min_length=1, description="Table to stream from, in place of `format` and `path`.")
    schema_ddl: str | None = Field(
        default=None,
        alias="schema",
        min_length=1,
        description="Columns as DDL (`year INT, origin STRING`) or as Spark's schema JSON. File formats need it.",
    )
    options: Mapping[str, Option] = Field(default_factory=dict, description="Options of the format, passed to Spark as they are.")
    watermark: Watermark | None = Field(default=None, description="Event-time watermark to put on the source.")

    @model_validator(mode="after")
    def _one_kind_of_input(self) -> Self:
        remember_options(self.options)
        if self.table is None and self.format is None:
            raise wrong("has neither format nor table", remedy="Add format: csv (or another format), or table: name.")
        if self.table is not None and (self.format is not None or self.path is not None):
            raise wrong("has a table and also format or path", remedy="Keep either table, or format and path.", at=("table",))
        if self.format in FILE_FORMATS and self.path is None:
            raise wrong(f"reads files ({self.format}) but has no path", remedy="Add path: ./incoming.")
        return self
