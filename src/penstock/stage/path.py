"""The two paths of a batch through the staging pass, by the driver or by tasks. Both give the same content.

Measured on two cores with five columns: up to some 100,000 rows, fetching Arrow to the driver costs a quarter to a half of one
`mapInArrow` pass (docs/benchmarks.md). A batch's size is not known before it ran, so the size of the one before it decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

DRIVER_ROWS = 100_000
DRIVER_BYTES = 16 * 1024 * 1024
DRIVER_PARTITIONS = 4


class StagePath(str, Enum):
    """Where the rows of a batch were staged."""

    DISTRIBUTED = "distributed"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """The size of a batch in rows and in bytes of Arrow. `row_bytes` is the widest average row among its tasks.

    `measured` is False for a guess from what another run has staged.
    """

    rows: int
    size_bytes: int
    row_bytes: int = 0
    measured: bool = True

    @property
    def fits_driver(self) -> bool:
        return self.rows <= DRIVER_ROWS and self.size_bytes <= DRIVER_BYTES


def is_small(*, input_records: int, input_bytes: int) -> bool:
    """Return whether a batch with this input may be fetched whole, without counting rows, if the batch before it fitted.

    If a transform suddenly makes many rows out of few, `spark.driver.maxResultSize` stops the fetch, and tasks stage the batch.
    """
    return input_records <= DRIVER_ROWS and input_bytes <= DRIVER_BYTES


def driver_rows_per_partition(previous: BatchSize) -> int:
    """Return how many rows each of DRIVER_PARTITIONS may bring to the driver before the guess counts as wrong.

    Rows like the previous ones then take at most four times DRIVER_BYTES; `spark.driver.maxResultSize` bounds the rest.
    """
    row_bytes = max(previous.row_bytes, 1)
    return max(1_000, min(DRIVER_ROWS, DRIVER_BYTES // row_bytes))


_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNLIMITED = str(2**31 - 1)

_UNKNOWN_ROWS = 4_096
_MOST_ROWS = 16_384
_BATCH_BYTES = 4 * 1024 * 1024
"""Larger batches are not faster: with rows of 1 KB, a pass with 16 MB took 1.1 times as long."""
_WIDE_ROW_BYTES = 8 * 1024


def settings_for(schema: StructType, previous: BatchSize | None) -> Mapping[str, str]:
    """Return Arrow's settings for a batch that is expected to be like `previous`; empty where Spark's own are the safe ones.

    With a byte limit per Arrow batch, Spark 4.1 and newer add up all buffers of the batch after every row, which costs more than
    everything else the JVM does in the pass. So the number of rows bounds the bytes instead. Only rows so wide that the adding up
    does not matter keep the byte limit.
    """
    if previous is None or previous.row_bytes == 0:
        return {} if any(_may_be_huge(field.dataType) for field in schema.fields) else _rows(_UNKNOWN_ROWS)
    if previous.row_bytes > _WIDE_ROW_BYTES:
        return {}
    return _rows(min(_MOST_ROWS, _BATCH_BYTES // previous.row_bytes))


def _rows(rows: int) -> Mapping[str, str]:
    return {_ROWS: str(rows), _BYTES: _UNLIMITED}


def _may_be_huge(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_may_be_huge(field.dataType) for field in data_type.fields)
    return isinstance(data_type, BinaryType | ArrayType | MapType)
