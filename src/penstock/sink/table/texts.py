"""Values that travel as texts in ISO form, and back: for databases whose own numbers and times are not to be trusted to a
client.
"""

from typing import Any

import pyarrow as pa

from penstock.sink.table.storage import Encode, Values, without_negative_scale


def texts_by_way_of(*kinds: "pa.DataType") -> Encode:
    """The text of the values once they were cast to `kinds`, one after the other."""

    def encode(column: "pa.Array") -> "pa.Array":
        for kind in (*kinds, pa.string()):
            column = column.cast(kind)
        return column

    return encode


def decimal_texts(column: "pa.Array") -> "pa.Array":
    """Decimals with all their digits."""
    return without_negative_scale(column).cast(pa.string())


def moment_texts(column: "pa.Array") -> "pa.Array":
    """Timestamps to the microsecond, in UTC where they have a zone, which the text does not say."""
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())


def to_moments(values: Values, kind: Any) -> "pa.Array":
    """Timestamps of what `moment_texts` gives."""
    return pa.array(values, pa.string()).cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)


def to_times(values: Values, kind: Any) -> "pa.Array":
    """Times of day."""
    moments = [None if value is None else f"1970-01-01 {value}" for value in values]  # Arrow reads no times of day
    return pa.array(moments, pa.string()).cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.time64("us")).cast(kind)
