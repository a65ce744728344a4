"""The rows of a batch, read once more as the query reads them, each with where it came from: for the rules of sources."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
from pyspark.sql.types import StructType

from penstock.core.bad_record import RECORD, RECORD_FIELDS
from penstock.core.model import OffsetRange
from penstock.source.kafka.decode import decoded
from penstock.source.kafka.records_again import KafkaRecords
from penstock.spark.column_name import quoted
from penstock.spec.source import Source

if TYPE_CHECKING:
    from penstock.registry.decoding import DecodePass

_OF_TEXT = frozenset({"csv", "json", "xml"})
_METRIC = "penstock_null_rows_"
_PATTERNS = frozenset("{}[]*?\\")
_WATERMARK = "spark.watermarkDelayMs"


def with_all_columns_read(name: str, source: Source, frame: DataFrame) -> DataFrame:
    """Return the rows of source `name` such that Spark reads all of its columns, whatever the query uses, where that matters.

    Of text files Spark judges whether a line fits the schema by the columns that it reads alone: two reads of one line for other
    columns can disagree on `_corrupt_record`, and on which values are NULL.
    """
    if (source.format or "").lower() not in _OF_TEXT:
        return frame
    is_null = (F.col(quoted(column)).isNull() for column in frame.columns)
    return frame.observe(f"{_METRIC}{name}", F.count_if(reduce(and_, is_null)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """The rows of a file source. `schema`: Spark's JSON of the columns that the query reads, those of the path included."""

    name: str
    source: Source
    schema: str

    def rows(self, spark: SparkSession, offsets: OffsetRange, files: Sequence[str]) -> DataFrame | None:  # noqa: ARG002 - of Kafka
        """Return the rows of `files`, which are URLs as Spark logs them, with the column RECORD; None if there are none."""
        if not files:
            return None
        options = {**self.source.options, "__globPaths__": "false"}  # a name is no pattern
        path = self.source.path or ""
        if not _PATTERNS & set(path) and "basepath" not in map(str.lower, options):
            options["basePath"] = path
        reader = spark.read.options(**options).schema(without_watermark(self.schema)).format(self.source.format or "")
        rows = with_all_columns_read(self.name, self.source, reader.load([unquote(url) for url in files]))
        return with_record(rows, {"file": "input_file_name()"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRows:
    """The rows of a Kafka source, decoded if it decodes."""

    name: str
    source: Source
    decode_pass: "DecodePass | None"

    def rows(self, spark: SparkSession, offsets: OffsetRange, files: Sequence[str]) -> DataFrame | None:  # noqa: ARG002 - of files
        """Return the rows between two offsets with the column RECORD; None if there can be none."""
        records = KafkaRecords(self.name, self.source).between(spark, offsets)
        if records is None:
            return None
        found = with_headers_as_asked(self.source, with_kafka_record(records))
        return found if self.decode_pass is None else decoded(self.name, found, self.decode_pass)


_OF_KAFKA = ("topic", "partition", "offset", "timestamp", "key", "value")


def with_kafka_record(records: DataFrame, beside: Mapping[str, str] = MappingProxyType({})) -> DataFrame:
    """Return records of Kafka with the column RECORD. `beside`: SQL of more of its fields."""
    return with_record(records, {**{name: name for name in _OF_KAFKA}, "headers": "to_json(headers)", **beside})


def with_headers_as_asked(source: Source, records: DataFrame) -> DataFrame:
    """Return records without the column `headers`, unless the source's options ask for it."""
    return records if str(option(source, "includeheaders")).lower() == "true" else records.drop("headers")


def with_record(frame: DataFrame, known: Mapping[str, str]) -> DataFrame:
    """Return rows with the column RECORD; `known` has the SQL of its fields, the others are NULL."""
    fields = [F.expr(f"CAST({known.get(name, 'NULL')} AS {sql_type})").alias(name) for name, sql_type in RECORD_FIELDS.items()]
    return frame.withColumn(RECORD, F.struct(*fields))


def option(source: Source, wanted: str) -> str | None:
    """Return an option of the source by its name in lower case, None if it is not given."""
    return next((value for name, value in source.options.items() if name.lower() == wanted), None)


def without_watermark(schema: str) -> StructType:
    """Return the columns of `schema`, Spark's JSON, as those of a table."""
    fields = json.loads(schema)["fields"]
    for field in fields:
        field["metadata"].pop(_WATERMARK, None)
    return StructType.fromJson({"type": "struct", "fields": fields})
