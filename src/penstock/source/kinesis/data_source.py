"""A stream of Kinesis as a Python data source of Spark. Tasks find its classes by name. Needs PySpark 4.2, as the others."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.source.kinesis.connection import connect
from penstock.source.kinesis.settings import FORMAT, KinesisSettings, settings_in
from penstock.source.kinesis.stream import KinesisStream
from penstock.source.piece_reader import LimitedPieceReader

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.source.kinesis.stream import Piece

COLUMNS = (
    "data BINARY, partition_key STRING, sequence_number STRING, sub_sequence_number BIGINT, shard_id STRING, "
    "approximate_arrival_timestamp TIMESTAMP, stream STRING"
)


class KinesisDataSource(DataSource):
    """Records of a stream, with the options of `settings.data_source_options`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: StructType) -> "KinesisStreamReader":  # noqa: ARG002, N802 - Spark's name
        """Return a reader: Spark uses one for the query's offsets, and one in each task."""
        return KinesisStreamReader(settings_in(self.options))


class KinesisStreamReader(LimitedPieceReader[KinesisStream]):
    """Reads the pieces of shards, one for each shard that has new records. Picklable until it is asked for offsets."""

    def __init__(self, settings: KinesisSettings) -> None:
        super().__init__(KinesisStream(settings, partial(connect, settings)))
        self._settings = settings

    def batches_of(self, piece: "Piece") -> "Iterator[pa.RecordBatch]":
        from penstock.source.kinesis.fetch import batches_of  # noqa: PLC0415 - not before a task needs it

        return batches_of(piece, self._settings, connect(self._settings))
