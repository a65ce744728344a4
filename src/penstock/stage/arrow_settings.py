"""Spark's Arrow settings for the staging pass.

With a byte limit per Arrow batch, Spark 4.1 and newer add up all buffers of the batch after every row, which costs more than
everything else the JVM does in the pass. So the number of rows bounds the bytes instead. Only rows so wide that the adding up
does not matter keep the byte limit.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from penstock.stage.path import BatchSize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNLIMITED = str(2**31 - 1)

_UNKNOWN_ROWS = 4_096
_MOST_ROWS = 16_384
_BATCH_BYTES = 4 * 1024 * 1024
"""Larger batches are not faster: with rows of 1 KB, a pass with 16 MB took 1.1 times as long."""
_WIDE_ROW_BYTES = 8 * 1024


def settings_for(schema: StructType, previous: BatchSize | None) -> Mapping[str, str]:
    """Return the settings for a batch that is expected to be like `previous`; empty where Spark's own are the safe ones."""
    if previous is None or previous.row_bytes == 0:
        return {} if any(_may_be_huge(field.dataType) for field in schema.fields) else _rows(_UNKNOWN_ROWS)
    if previous.row_bytes > _WIDE_ROW_BYTES:
        return {}
    return _rows(min(_MOST_ROWS, _BATCH_BYTES // previous.row_bytes))


def _rows(rows: int) -> Mapping[str, str]:
    return {_ROWS: str(rows), _BYTES: _UNLIMITED}


def _may_be_huge(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_may_be_huge(field.dataType) for field in kind.fields)
    return isinstance(kind, BinaryType | ArrayType | MapType)


@contextmanager
def applied(session: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Set `settings` in `session` for the duration of one Spark action, then restore the user's values."""
    before: dict[str, str | None] = {key: session.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)
