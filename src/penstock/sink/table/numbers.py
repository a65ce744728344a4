"""Numbers from database clients, converted to Arrow columns without rounding."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.target import NotStoredError

INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Decimal digits that a decimal column needs to hold every integer of so many bits."""


def to_integers(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Convert integers, or decimals without a fraction, to `kind`. Raise NotStoredError for other decimals."""
    return pa.array([_whole(value) if isinstance(value, Decimal) else value for value in values], pa.int64()).cast(kind)


def to_reals(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Convert doubles to `kind`. Raise NotStoredError if `kind` cannot hold one of them exactly."""
    found = pa.array(values, pa.float64())
    narrow = found.cast(kind, safe=False)
    if pc.any(pc.and_not(pc.not_equal(narrow.cast(pa.float64()), found), pc.is_nan(found))).as_py():
        raise NotStoredError(f"expected numbers that {kind} can hold")
    return narrow


def _whole(value: Decimal) -> int:
    if value != value.to_integral_value():
        raise NotStoredError(f"expected a whole number, found {value}")
    return int(value)
