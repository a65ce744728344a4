"""Journals as a Python data source of Spark. Tasks find its classes by name. Needs PySpark 4.2, as the reader of Kafka."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.journal.storage import LocalStorage
from penstock.source.journal.settings import FORMAT, JournalSettings, settings_in
from penstock.source.journal.stream import JournalStream
from penstock.source.piece_reader import LimitedPieceReader

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.source.journal.stream import Piece

COLUMNS = (
    "value BINARY, key BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, producer STRING, producer_sequence BIGINT, "
    "journal STRING, sequence BIGINT, received_at TIMESTAMP, remote STRING"
)


class JournalDataSource(DataSource):
    """Events of journals, with the options of `opening.data_source_options`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: StructType) -> "JournalStreamReader":  # noqa: ARG002, N802 - Spark's name
        """Return a reader: Spark uses one for the query's offsets, and one in each task."""
        return JournalStreamReader(settings_in(self.options))


class JournalStreamReader(LimitedPieceReader[JournalStream]):
    """Reads the pieces of journals, one for each journal that has new events."""

    def __init__(self, settings: JournalSettings) -> None:
        super().__init__(JournalStream(settings, LocalStorage(), now_us=_now_us))
        self._settings = settings

    def batches_of(self, piece: "Piece") -> "Iterator[pa.RecordBatch]":
        from penstock.source.journal.fetch import batches_of  # noqa: PLC0415 - not before a task needs it

        return batches_of(piece, self._settings)


def _now_us() -> int:
    return time.time_ns() // 1_000
