"""The two paths of a batch through the staging pass, by the driver or by tasks. Both give the same content.

Measured on two cores with five columns: up to some 100,000 rows, fetching Arrow to the driver costs a quarter to a half of one
`mapInArrow` pass (docs/benchmarks.md). A batch's size is not known before it ran, so the size of the one before it decides.
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
    """The size of a batch in rows and in bytes of Arrow. `row_bytes` is the widest average row among its tasks.

    `measured` is False for a guess from what another run has staged.
    """

    rows: int
    size_bytes: int
    row_bytes: int = 0
    measured: bool = True

    @property
    def fits_driver(self) -> bool:
        """Whether a batch of this size is staged in the driver."""
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
