"""Records of the quarantine as rows of their source again: decoded from their bytes, or read from the row or line that is kept.

Each is offered in two ways, as a batch's own input is: as the query gets it (`table`), and with the column RECORD for the rules.
"""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
from pyspark.sql.types import StringType, StructField, StructType

from penstock.core.bad_record import HISTORY
from penstock.core.model import OffsetRange
from penstock.core.quarantined_record import QuarantinedRecord
from penstock.errors import Refused
from penstock.source.kafka.decode import decoded
from penstock.source.rows_again import option, with_headers_as_asked, with_kafka_record, with_record, without_watermark
from penstock.spark.column_name import quoted
from penstock.spark.json_row import RowUnreadable, row_of, texts_of
from penstock.spec.source import Source

if TYPE_CHECKING:
    from penstock.registry.decoding import DecodePass

_KAFKA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers STRING, history STRING"
)
_HEADERS = "array<struct<key: string, value: binary>>"
_FILE = "file"
_LINE = "_penstock_line"
_PLACE = "_penstock_"
_CORRUPT = "columnNameOfCorruptRecord"
_OF_FILES_ONLY = frozenset({"header", "multiline", "mode", _CORRUPT.lower(), "path", "basepath"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRecords:
    """Records that came from Kafka, by the bytes that the quarantine keeps. `timestampType` is not among them: it is NULL."""

    name: str
    source: Source
    decode_pass: "DecodePass | None"
    records: Sequence[QuarantinedRecord]

    def between(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame | None:  # noqa: ARG002 - all of them
        """Return the records as Spark's connector gives them, with the column HISTORY besides; None without any."""
        return self._raw(spark) if self.records else None

    def count(self, offsets: OffsetRange) -> int:  # noqa: ARG002 - all of them
        return len(self.records)

    def rows(self, spark: SparkSession, offsets: OffsetRange, files: Sequence[str]) -> DataFrame | None:  # noqa: ARG002
        """Return the decoded records with the column RECORD; None without any."""
        return self._decoded(with_kafka_record(self._raw(spark), {HISTORY: HISTORY})) if self.records else None

    def table(self, spark: SparkSession) -> DataFrame:
        """Return the decoded records as the query reads them."""
        return self._decoded(self._raw(spark))

    def _decoded(self, records: DataFrame) -> DataFrame:
        found = with_headers_as_asked(self.source, records.drop(HISTORY)).alias(self.name)
        return found if self.decode_pass is None else decoded(self.name, found, self.decode_pass)

    def _raw(self, spark: SparkSession) -> DataFrame:
        rows = [_kafka_row(each) for each in self.records]
        return spark.createDataFrame(rows, _KAFKA).withColumn("headers", F.from_json("headers", _HEADERS))


def _kafka_row(record: QuarantinedRecord) -> tuple[Any, ...]:
    key, value = (None if part is None else b64decode(part) for part in (record.key, record.value))
    seconds = None if record.timestamp_ms is None else record.timestamp_ms // 1000
    written = None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    if written is not None and record.timestamp_ms is not None:
        written = written.replace(microsecond=record.timestamp_ms % 1000 * 1000)
    headers = json.dumps([{"key": name, "value": content} for name, content in record.headers]) if record.headers else None
    place = (record.topic, record.partition, record.offset, written, None)
    return (key, value, *place, headers, record.history_if_refused)


class _Line(NamedTuple):
    """A line of text that did not fit the schema, to be parsed by the present one; `path`: the values of the path's columns."""

    text: str
    path: Mapping[str, Any]
    record: QuarantinedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedFileRows:
    """Rows that came from files. `schema`: Spark's JSON of the columns that the query reads, those of the path included.

    A line that did not fit the schema is parsed again, by the schema and the options of now. Any other row has the values that it
    had then.
    """

    name: str
    source: Source
    schema: str
    records: Sequence[QuarantinedRecord]

    def rows(self, spark: SparkSession, offsets: OffsetRange, files: Sequence[str]) -> DataFrame | None:  # noqa: ARG002
        """Return the rows with the column RECORD; None without any. Raises Refused."""
        if not self.records:
            return None
        places = {name: quoted(_PLACE + name) for name in (_FILE, HISTORY)}
        return with_record(self._frame(spark), places).drop(*(_PLACE + name for name in places))

    def table(self, spark: SparkSession) -> DataFrame:
        """Return the rows as the query reads them. Raises Refused for one that is no row of the schema."""
        return self._frame(spark).select(*(quoted(each.name) for each in self._columns)).alias(self.name)

    @property
    def _columns(self) -> StructType:
        return without_watermark(self.schema)

    def require_readable(self, spark: SparkSession) -> None:
        """Raise Refused for a record that is no row of the schema."""
        self._divided(self._corrupt(spark))

    def _frame(self, spark: SparkSession) -> DataFrame:
        corrupt = self._corrupt(spark)
        plain, lines = self._divided(corrupt)
        places = [StructField(_PLACE + name, StringType()) for name in (_FILE, HISTORY)]
        frame = spark.createDataFrame(plain, StructType([*self._columns.fields, *places]))
        for names in {tuple(line.path) for line in lines}:
            frame = frame.unionByName(self._parsed(spark, corrupt or "", [each for each in lines if tuple(each.path) == names]))
        return frame

    def _divided(self, corrupt: str | None) -> tuple[list[tuple[Any, ...]], list[_Line]]:
        """Return the rows that are taken as they are, and the lines that are parsed again."""
        columns, plain, lines = self._columns, list[tuple[Any, ...]](), list[_Line]()
        for record in self.records:
            text = None if corrupt is None else _texts(record).get(corrupt)
            if text is None:
                plain.append((*_values(record, columns), record.file, record.history_if_refused))
            else:
                of_path = StructType([each for each in columns if each.name in _columns_of_path(record.file)])
                lines.append(_Line(text, dict(zip(of_path.names, _values(record, of_path), strict=True)), record))
        return plain, lines

    def _corrupt(self, spark: SparkSession) -> str | None:
        """Return the column that holds lines that do not fit, None without one."""
        if (self.source.format or "").lower() not in _PARSERS:
            return None
        name = option(self.source, _CORRUPT.lower()) or spark.conf.get("spark.sql.columnNameOfCorruptRecord")
        return name if name in self._columns.names else None

    def _parsed(self, spark: SparkSession, corrupt: str, lines: Sequence[_Line]) -> DataFrame:
        of_path = [each for each in self._columns if each.name in lines[0].path]
        of_line = StructType([each for each in self._columns if each.name not in lines[0].path])
        given = {name: value for name, value in self.source.options.items() if name.lower() not in _OF_FILES_ONLY}
        options = {**{name: str(value) for name, value in given.items()}, "mode": "PERMISSIVE", _CORRUPT: corrupt}
        names = [_LINE, *(_PLACE + name for name in (_FILE, HISTORY))]
        texts = [StructField(name, StringType()) for name in names]
        rows = [(line.text, line.record.file, line.record.history_if_refused, *line.path.values()) for line in lines]
        kept = [*names[1:], *(each.name for each in of_path)]
        parse = _PARSERS[(self.source.format or "").lower()]
        found = spark.createDataFrame(rows, StructType([*texts, *of_path])).select(
            parse(F.col(_LINE), of_line, options).alias(_LINE), *map(quoted, kept)
        )
        return found.select(f"{_LINE}.*", *map(quoted, kept))


def _from_csv(line: Any, schema: StructType, options: dict[str, str]) -> Any:
    ddl = ", ".join(f"{quoted(each.name)} {each.dataType.simpleString()}" for each in schema)
    return F.from_csv(line, ddl, options)


_PARSERS: Mapping[str, Any] = {"csv": _from_csv, "json": F.from_json, "xml": F.from_xml}


def _columns_of_path(file: str | None) -> frozenset[str]:
    parts = unquote(file or "").split("/")[:-1]
    return frozenset(part.partition("=")[0] for part in parts if "=" in part)


def _values(record: QuarantinedRecord, columns: StructType) -> tuple[Any, ...]:
    try:
        return row_of(record.row or "", columns.jsonValue())
    except RowUnreadable as cause:
        raise unreadable(record, str(cause)) from cause


def _texts(record: QuarantinedRecord) -> Mapping[str, str | None]:
    try:
        return texts_of(record.row or "")
    except RowUnreadable as cause:
        raise unreadable(record, str(cause)) from cause


def unreadable(record: QuarantinedRecord, reason: str) -> Refused:
    """Return the error that a record's row is no row of the present schema."""
    return Refused(
        f"Record {record.id} of batch {record.batch} cannot be replayed: {reason}.",
        remedy="Give the column a type that takes the value, or name the records to replay by --rows and leave this one out.",
    )
