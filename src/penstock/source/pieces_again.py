"""Pieces of one of Penstock's own readers, read once more as a table instead of a stream."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.source.schema import schema_argument

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.source.piece_reader import PieceReader

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
