"""Values sent and read as texts in ISO form, for databases whose numbers and times a client does not convert reliably."""

from typing import Any

import pyarrow as pa

from penstock.sink.table.storage import Encode, Values, without_negative_scale


def texts_by_way_of(*kinds: "pa.DataType") -> Encode:
    """Return an encoder that casts values to each of `kinds` in turn, then to text."""

    def encode(column: "pa.Array") -> "pa.Array":
        for kind in (*kinds, pa.string()):
            column = column.cast(kind)
        return column

    return encode


def decimal_texts(column: "pa.Array") -> "pa.Array":
    """Return decimals as texts with all their digits."""
    return without_negative_scale(column).cast(pa.string())


def moment_texts(column: "pa.Array") -> "pa.Array":
    """Return timestamps as texts to the microsecond; those with a zone in UTC, which the text does not say."""
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())


def to_moments(values: Values, kind: Any) -> "pa.Array":
    """Convert texts of `moment_texts` back to timestamps."""
    return pa.array(values, pa.string()).cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)


def to_times(values: Values, kind: Any) -> "pa.Array":
    """Convert texts to times of day."""
    moments = [None if value is None else f"1970-01-01 {value}" for value in values]  # Arrow parses no times of day
    return pa.array(moments, pa.string()).cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.time64("us")).cast(kind)
