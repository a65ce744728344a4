"""Penstock's own Kafka reader as a Python data source of Spark.

Tasks find its classes by name; the client library is imported only where it is used. Needs PySpark 4.2: before that a Python
source has no say in what a batch reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.errors import DependencyMissing, PenstockError
from penstock.source.kafka.reader.settings import FORMAT, ReaderSettings, settings_in
from penstock.source.kafka.reader.stream import OffsetStream
from penstock.support.error_transport import encode_error

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.source.kafka.broker import Broker

_COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
_HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


class ReaderFailed(RuntimeError):
    """The exception that Spark gets. Its text encodes the real error."""


class KafkaDataSource(DataSource):
    """Records of Kafka, with the options of `data_source_options`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """Return the columns of Spark's connector."""
        return f"{_COLUMNS}, {_HEADERS}" if settings_in(self.options).has_headers else _COLUMNS

    def streamReader(self, schema: StructType) -> "KafkaStreamReader":  # noqa: ARG002, N802 - Spark's name
        """Return a reader: Spark uses one for the query's offsets, and one in each task."""
        return KafkaStreamReader(settings_in(self.options))


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers offsets on the driver and reads pieces in tasks. Picklable until it is asked for offsets."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._stream = OffsetStream(settings, partial(_connect, settings))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with _carry_errors():
            return self._stream.begin()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the option `maxOffsetsPerTrigger`."""
        limit = self._settings.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next batch ends."""
        with _carry_errors():
            return self._stream.advance(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at the topics' present ends: read nothing that is written later."""
        with _carry_errors():
            self._stream.stop_at_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the newest offsets for the query's progress."""
        return self._stream.newest()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Return the pieces, the same for the same offsets."""
        with _carry_errors():
            return [InputPartition(piece) for piece in self._stream.planned(start, end)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the records of one piece; called in a task."""
        with _carry_errors():
            try:
                from penstock.source.kafka.reader.fetch import batches_of  # noqa: PLC0415 - not before a task needs it
            except ImportError as cause:
                raise _no_client(cause) from cause
            yield from batches_of(partition.value, self._settings)


def _connect(settings: ReaderSettings) -> "Broker":
    try:
        from penstock.source.kafka.broker import Broker  # noqa: PLC0415 - it may not be installed
    except ImportError as cause:
        raise _no_client(cause) from cause
    return Broker(settings.name, settings.client)


def _no_client(cause: ImportError) -> DependencyMissing:
    return DependencyMissing(
        f"Penstock's own reader of Kafka needs the package confluent-kafka, which is not installed there: {cause}.",
        remedy="Install it on the driver and on every executor: pip install 'penstock[kafka]'.",
    )


@contextmanager
def _carry_errors() -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        raise ReaderFailed(encode_error(error)) from None
