"""Journals as a Python data source of Spark. Tasks find its classes by name. Needs PySpark 4.2, as the reader of Kafka."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.journal.storage import LocalStorage
from penstock.source.journal.settings import FORMAT, JournalSettings, settings_in
from penstock.source.journal.stream import JournalStream
from penstock.support.error_transport import encode_error

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (
    "value BINARY, key BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, producer STRING, producer_sequence BIGINT, "
    "journal STRING, sequence BIGINT, received_at TIMESTAMP, remote STRING"
)


class ReaderFailed(RuntimeError):
    """The exception that Spark gets. Its text encodes the real error."""


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


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers offsets on the driver and reads pieces in tasks."""

    def __init__(self, settings: JournalSettings) -> None:
        self._settings = settings
        self._stream = JournalStream(settings, LocalStorage(), now_us=_now_us)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        with _carry_errors():
            return self._stream.begin()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return no limit of Spark's: the options' are known to the stream."""
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's name
        """Return where the next batch ends."""
        with _carry_errors():
            return self._stream.advance(start)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at the journals' present ends: read nothing that is acknowledged later."""
        with _carry_errors():
            self._stream.stop_at_now()

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802 - Spark's name
        """Return the newest offsets for the query's progress."""
        return self._stream.newest()

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        """Return the pieces, one for each journal."""
        with _carry_errors():
            return [InputPartition(piece) for piece in self._stream.planned(start, end)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the events of one piece; called in a task."""
        from penstock.source.journal.fetch import batches_of  # noqa: PLC0415 - not before a task needs it

        with _carry_errors():
            yield from batches_of(partition.value, self._settings)


def _now_us() -> int:
    return time.time_ns() // 1_000


@contextmanager
def _carry_errors() -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        raise ReaderFailed(encode_error(error)) from None
