"""Penstock's own Kafka reader as a Python data source of Spark.

Tasks find its classes by name; the client library is imported only where it is used. Needs PySpark 4.2: before that a Python
source has no say in what a batch reads.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from penstock.source.kafka.reader.settings import FORMAT, ReaderSettings, no_client, settings_in
from penstock.source.kafka.reader.stream import OffsetStream
from penstock.source.piece_reader import PieceReader, carry_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.source.kafka.broker import Broker
    from penstock.source.kafka.reader.plan import Piece

_COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
_HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


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


class KafkaStreamReader(PieceReader[OffsetStream]):
    """Picklable until it is asked for offsets."""

    def __init__(self, settings: ReaderSettings) -> None:
        super().__init__(OffsetStream(settings, partial(_connect, settings)))
        self._settings = settings

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the option `maxOffsetsPerTrigger`."""
        limit = self._settings.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next batch ends."""
        with carry_errors():
            return self._offsets.advance(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def batches_of(self, piece: "Piece") -> "Iterator[pa.RecordBatch]":
        try:
            from penstock.source.kafka.reader.fetch import batches_of  # noqa: PLC0415 - not before a task needs it
        except ImportError as cause:
            raise no_client(cause) from cause
        return batches_of(piece, self._settings)


def _connect(settings: ReaderSettings) -> "Broker":
    try:
        from penstock.source.kafka.broker import Broker  # noqa: PLC0415 - it may not be installed
    except ImportError as cause:
        raise no_client(cause) from cause
    return Broker(settings.name, settings.client)
