"""Reads a source once more for the offsets of one batch, as a table instead of a stream."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from penstock.core.kafka_offset import KafkaOffset, topic_offsets_in
from penstock.core.model import OffsetRange
from penstock.errors import Refused
from penstock.source.guarantee import is_file_format
from penstock.source.journal import journals
from penstock.source.kafka.options import is_kafka
from penstock.source.kafka.reader import opening
from penstock.source.kafka.records_again import KafkaRecords
from penstock.source.kinesis import streams
from penstock.source.kinesis.settings import settings_in
from penstock.source.python_source import can_read
from penstock.source.schema import schema_argument
from penstock.spark.error import read_spark_error
from penstock.spec.source import Source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.source.piece_reader import PieceReader

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
    """The `ReadsRange` of a Kafka source: by Spark's connector, or where that is missing by Penstock's own reader."""

    def __init__(self, name: str, source: Source) -> None:
        self._name, self._source = name, source

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: Sequence[str]) -> "DataFrame":  # noqa: ARG002
        """Return the records. Both readers fail where one is missing, unless the source says `on_gap: accept`."""
        if self._source.reader != "python":
            try:
                found = KafkaRecords(self._source).between(spark, offsets)
                if found is not None:
                    return found if self._has_headers else found.drop("headers")
            except Exception as error:
                condition = read_spark_error(str(error)).condition or ""
                if not can_read(spark) or not condition.endswith(("DATA_SOURCE_NOT_FOUND", "DATA_SOURCE_NOT_ENABLED")):
                    raise
        return self._by_python(spark, offsets)

    @property
    def _has_headers(self) -> bool:
        options = {name.lower(): value for name, value in self._source.options.items()}
        return options.get("includeheaders", "false").lower() == "true"

    def _by_python(self, spark: "SparkSession", offsets: OffsetRange) -> "DataFrame":
        from penstock.source.kafka.reader.data_source import KafkaDataSource, KafkaStreamReader  # noqa: PLC0415 - Spark 4.2
        from penstock.source.kafka.reader.settings import settings_in  # noqa: PLC0415

        options = opening.data_source_options(self._name, self._source)
        start, end = (KafkaOffset(topics=topic_offsets_in(at)).written() for at in (offsets.start, offsets.end))
        make = partial(KafkaStreamReader, settings_in(options))
        return rows_of_pieces(spark, make, start, end, columns=KafkaDataSource(dict(options)).schema())


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
        self._settings = settings_in(streams.data_source_options(name, source))

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: Sequence[str]) -> "DataFrame":  # noqa: ARG002
        """Return the records. Raises what the reader raises for records that have expired."""
        from penstock.source.kinesis.data_source import COLUMNS, KinesisStreamReader  # noqa: PLC0415 - Spark 4.2

        if offsets.end is None:
            return spark.createDataFrame([], schema_argument(COLUMNS))
        end = json.loads(offsets.end)
        start = json.loads(offsets.start) if offsets.start else {**end, "shards": {}}
        return rows_of_pieces(spark, partial(KinesisStreamReader, self._settings), start, end, columns=COLUMNS)


Make = Callable[[], "PieceReader[Any]"]


def rows_of_pieces(
    spark: "SparkSession", make: Make, start: Mapping[str, Any], end: Mapping[str, Any], *, columns: str
) -> "DataFrame":
    """Return the rows between two offsets of one of Penstock's own readers, a task for each of its pieces.

    `columns`: of the rows, as DDL or as Spark's JSON.
    """
    pieces = tuple(each.value for each in make().partitions(start, end))
    schema = schema_argument(columns)
    if not pieces:
        return spark.createDataFrame([], schema)
    return spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(_ReadPieces(make, pieces), schema)


@dataclass(frozen=True, slots=True)
class _ReadPieces:
    """Reads in a task the pieces whose numbers it is given."""

    make: Make
    pieces: tuple[Any, ...]

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.make().batches_of(self.pieces[number])


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
