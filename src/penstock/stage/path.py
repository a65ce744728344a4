"""Which of the two paths a batch takes through the staging pass. Both give the same content.

Measured on two cores with five columns: up to some 100,000 rows fetching Arrow to the driver costs a quarter to a half of what
one `mapInArrow` pass does (docs/benchmarks.md). The size of a batch is not known before it ran, so the one before it is asked.
"""

from dataclasses import dataclass
from enum import Enum

DRIVER_ROWS = 100_000
DRIVER_BYTES = 16 * 1024 * 1024
DRIVER_PARTITIONS = 4


class StagePath(str, Enum):
    """Where the rows of a batch were staged."""

    DISTRIBUTED = "distributed"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """How much a batch was, in rows and bytes of Arrow. `row_bytes` is the widest average row among its tasks.

    Not `measured`: a guess from what another run has staged.
    """

    rows: int
    size_bytes: int
    row_bytes: int = 0
    measured: bool = True

    @property
    def fits_driver(self) -> bool:
        """Whether a batch like this one is staged in the driver."""
        return self.rows <= DRIVER_ROWS and self.size_bytes <= DRIVER_BYTES


def is_small(*, input_records: int, input_bytes: int) -> bool:
    """Whether a batch with this input may be fetched as a whole after a batch that fitted, without counting rows on the way.

    A transform that suddenly makes many rows out of few is stopped by `spark.driver.maxResultSize`, and then staged by tasks.
    """
    return input_records <= DRIVER_ROWS and input_bytes <= DRIVER_BYTES


def driver_rows_per_partition(previous: BatchSize) -> int:
    """How many rows each of DRIVER_PARTITIONS may bring to the driver before the guess counts as wrong.

    Rows like the previous ones then take at most four times DRIVER_BYTES; Spark's `spark.driver.maxResultSize` bounds the rest.
    """
    row_bytes = max(previous.row_bytes, 1)
    return max(1_000, min(DRIVER_ROWS, DRIVER_BYTES // row_bytes))
