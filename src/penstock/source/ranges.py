"""Reads a source once more for the offsets of one batch, as a table instead of a stream."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from penstock.core.model import OffsetRange
from penstock.errors import Refused
from penstock.source.guarantee import is_file_format
from penstock.source.journal import journals
from penstock.source.kafka.options import is_kafka
from penstock.source.kafka.records_again import KafkaRecords
from penstock.source.kinesis import streams
from penstock.source.pieces_again import rows_of_pieces
from penstock.source.rows_again import with_headers_as_asked
from penstock.source.schema import schema_argument
from penstock.spec.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PATTERNS = frozenset("*?[]{}\\")
_LITERAL_PATHS = {"__globPaths__": "false"}
"""Spark's own option by which it takes paths as they are, as its file source does for the files that it found."""


class ReadsRange(Protocol):
    """A source that can be read again by the offsets of a batch."""

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: Sequence[str]) -> "DataFrame":
        """Return the rows of one batch, with the columns of the stream. `files`: the URLs of its input files, if it has such."""
        ...


class FileRange:
    """The `ReadsRange` of a source of files. `schema` has all columns of the stream, those of the path included."""

    def __init__(self, source: Source, schema: "StructType") -> None:
        self._source, self._schema = source, schema

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: Sequence[str]) -> "DataFrame":  # noqa: ARG002
        """Return the rows of `files`, which must be there."""
        if not files:
            return spark.createDataFrame([], self._schema)
        reader = spark.read.options(**self._options()).schema(self._schema).format(self._source.format or "")
        return reader.load([_plain(url) for url in files])

    def _options(self) -> Mapping[str, str]:
        path = self._source.path or ""
        below = {} if _PATTERNS & set(path) else {"basePath": path}  # as Spark's own file source
        return {**self._source.options, **below, **_LITERAL_PATHS}


def _plain(url: str) -> str:
    """Return the URL of a file as Spark's readers take it: Spark logs it percent-encoded."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme in {"", "file"} else f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"


class KafkaRange:
    """The `ReadsRange` of a Kafka source."""

    def __init__(self, name: str, source: Source) -> None:
        self._source, self._records = source, KafkaRecords(name, source)

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: Sequence[str]) -> "DataFrame":  # noqa: ARG002
        """Return the records. Both readers fail where one is missing, unless the source says `on_gap: accept`."""
        found = self._records.between(spark, offsets)
        return with_headers_as_asked(self._source, self._records.by_python(spark, offsets) if found is None else found)


class JournalRange:
    """The `ReadsRange` of a source of journals, which the pipeline `pipeline` reads."""

    def __init__(self, name: str, source: Source, *, pipeline: str) -> None:
        self._options = journals.data_source_options(name, source, pipeline=pipeline)

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: Sequence[str]) -> "DataFrame":  # noqa: ARG002
        """Return the events. Raises what the reader raises for events that are gone."""
        from penstock.source.journal.data_source import COLUMNS, JournalStreamReader  # noqa: PLC0415 - Spark 4.2
        from penstock.source.journal.settings import settings_in  # noqa: PLC0415

        start, end = (json.loads(at) if at else {} for at in (offsets.start, offsets.end))
        return rows_of_pieces(spark, partial(JournalStreamReader, settings_in(self._options)), start, end, columns=COLUMNS)


class KinesisRange:
    """The `ReadsRange` of a stream of Kinesis."""

    def __init__(self, name: str, source: Source) -> None:
        self._settings = streams.settings_of(name, source)

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: Sequence[str]) -> "DataFrame":  # noqa: ARG002
        """Return the records. Raises what the reader raises for records that have expired."""
        from penstock.source.kinesis.data_source import COLUMNS, KinesisStreamReader  # noqa: PLC0415 - Spark 4.2

        if offsets.end is None:
            return spark.createDataFrame([], schema_argument(COLUMNS))
        end = json.loads(offsets.end)
        start = json.loads(offsets.start) if offsets.start else {**end, "shards": {}}
        return rows_of_pieces(spark, partial(KinesisStreamReader, self._settings), start, end, columns=COLUMNS)


def range_of(name: str, source: Source, schema: "StructType", *, pipeline: str) -> ReadsRange:
    """Return what reads batches of a source again. Raises Refused for a source that cannot be read by offsets."""
    if source.format is not None and is_file_format(source.format):
        return FileRange(source, schema)
    if is_kafka(source):
        return KafkaRange(name, source)
    if journals.is_journal(source):
        return JournalRange(name, source, pipeline=pipeline)
    if streams.is_kinesis(source):
        return KinesisRange(name, source)
    raise Refused(
        f"Source {name!r} ({source.format or f'table {source.table}'}) cannot be read again batch by batch.",
        remedy="Let the sink begin with the next batch, and load the past into it by a program of your own.",
    )
