"""How Spark asks Penstock's own readers for offsets and pieces, as a Python data source.

Needs PySpark 4.2: before that a Python source has no say in what a batch reads.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from penstock.errors import PenstockError
from penstock.support.error_transport import encode_error

if TYPE_CHECKING:
    import pyarrow as pa


class ReaderFailed(RuntimeError):
    """The exception that Spark gets. Its text encodes the real error."""


class Offsets(Protocol):
    """The offsets of one query over one source, in one process on the driver."""

    def begin(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        ...

    def stop_at_now(self) -> None:
        """Read nothing that is written later."""
        ...

    def planned(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[object]:
        """Return what the tasks of the batch read: the same for the same offsets."""
        ...

    def newest(self) -> dict[str, Any] | None:
        """Return how far the source went at the last look; None before there was any."""
        ...


class LimitedOffsets(Offsets, Protocol):
    """Offsets that know the limits of a batch, from the source's options."""

    def advance(self, start: Any) -> dict[str, Any]:
        """Return where the batch ends that begins at `start`; `start` itself if there is nothing new."""
        ...


R = TypeVar("R", bound=Offsets)
L = TypeVar("L", bound=LimitedOffsets)


class PieceReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[R]):
    """Offers offsets on the driver and reads pieces in tasks. A subclass adds `latestOffset` and its limits."""

    def __init__(self, offsets: R) -> None:
        self._offsets = offsets

    @abstractmethod
    def batches_of(self, piece: Any) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of one of the pieces that were planned, in a task."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with carry_errors():
            return self._offsets.begin()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at the source's present end."""
        with carry_errors():
            self._offsets.stop_at_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the newest offsets for the query's progress."""
        return self._offsets.newest()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        with carry_errors():
            return [InputPartition(piece) for piece in self._offsets.planned(start, end)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of one piece; called in a task."""
        with carry_errors():
            yield from self.batches_of(partition.value)


class LimitedPieceReader(PieceReader[L]):
    """A `PieceReader` that has no limit of Spark's: its offsets know those of the options."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: Mapping[str, Any],
        limit: ReadLimit,  # noqa: ARG002 - Spark's
    ) -> dict[str, Any]:
        """Return where the next batch ends."""
        with carry_errors():
            return self._offsets.advance(start)


@contextmanager
def carry_errors() -> Iterator[None]:
    """Raise Penstock's errors such that the driver finds them in what Spark says."""
    try:
        yield
    except PenstockError as error:
        raise ReaderFailed(encode_error(error)) from None
