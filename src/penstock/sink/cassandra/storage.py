"""How Arrow values are bound to Cassandra's columns and read back, and which values and column types do not keep them."""

import datetime as dt
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.nested import to_json
from penstock.sink.table.row_validator import YEARS_IN_MICROSECONDS, Limits, TableRowValidator
from penstock.sink.table.storage import (
    SPARK_TYPES,
    ColumnStorage,
    ColumnStorages,
    Values,
    anything,
    as_is,
    only,
    to_durations,
    to_reals,
    to_texts,
    to_values,
    without_negative_scale,
)

MAX_ROW_BYTES = 8_000_000
"""Half of what a server accepts by default."""
MAX_KEY_BYTES = 65_535
_OVERHEAD_BYTES = 32
"""The most bytes that each column of a key adds to those of its value."""
_types = pa.types
_INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64, "varint": 64}
_EPOCH, _MILLISECOND = dt.datetime(1970, 1, 1), dt.timedelta(milliseconds=1)  # noqa: DTZ001 - the driver's own have no zone
_FIRST_DAY = 1 << 31
"""Cassandra's number for 1970-01-01."""


def _takes_integer(declared: str, kind: Any) -> bool:
    return bool(_INTEGERS.get(declared, 0) >= kind.bit_width)


def _encode_date(column: "pa.Array") -> "pa.Array":
    return pc.add(column.cast(pa.int32()).cast(pa.int64()), _FIRST_DAY)


def _encode_moment(column: "pa.Array") -> "pa.Array":
    return column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())


def _encode_time(column: "pa.Array") -> "pa.Array":
    return column.cast(pa.time64("ns")).cast(pa.int64())


def _encode_duration(column: "pa.Array") -> "pa.Array":
    return column.cast(pa.duration("us")).cast(pa.int64())


def _to_days(values: Values, kind: Any) -> "pa.Array":
    return pa.array([None if value is None else value.days_from_epoch for value in values], pa.int32()).cast(kind)


def _to_moments(values: Values, kind: Any) -> "pa.Array":
    """Round to milliseconds: the driver makes datetimes of floating seconds, which misses some by microseconds."""
    found = [None if value is None else round((value - _EPOCH) / _MILLISECOND) for value in values]
    return pa.array(found, pa.int64()).cast(pa.timestamp("ms", kind.tz)).cast(kind)


def _to_times(values: Values, kind: Any) -> "pa.Array":
    return pa.array([None if value is None else value.nanosecond_time for value in values], pa.time64("ns")).cast(kind)


_one_of = ColumnStorage.one_of
_moments = partial(
    ColumnStorage.one_of,
    declared="timestamp",
    encode=_encode_moment,
    restore=_to_moments,
    refused="parts of a millisecond; outside the years 0001 to 9999",
)
_integers = partial(ColumnStorage.integers, takes=_takes_integer, encode=as_is, also="wider integers, varint")

_TEXT = _one_of("string", "text", encode=as_is, restore=to_texts, refused="an empty one as the whole partition key")
_BINARY = _one_of("binary", "blob", encode=as_is, restore=to_values, refused="an empty one as the whole partition key")
_NESTED = ColumnStorage.json("text", takes=only("text"), refused="times outside the years 0001 to 9999")
_VOID = ColumnStorage.nulls("text", takes=anything, also="any but a counter")

STORAGES = ColumnStorages(
    "Cassandra",
    (_types.is_int8, _integers("byte", "tinyint")),
    (_types.is_int16, _integers("short", "smallint")),
    (_types.is_int32, _integers("integer", "int")),
    (_types.is_int64, _integers("long", "bigint")),
    (_types.is_float32, _one_of("float", "float", "double", encode=as_is, restore=to_reals)),
    (_types.is_float64, _one_of("double", "double", encode=as_is, restore=to_values)),
    (_types.is_boolean, _one_of("boolean", "boolean", encode=as_is, restore=to_values)),
    (_types.is_decimal, _one_of("decimal(p,s)", "decimal", encode=without_negative_scale, restore=to_values)),
    (SPARK_TYPES["string"], _TEXT),
    (SPARK_TYPES["binary"], _BINARY),
    (_types.is_date, _one_of("date", "date", encode=_encode_date, restore=_to_days)),
    (SPARK_TYPES["timestamp"], _moments("timestamp")),
    (SPARK_TYPES["timestamp_ntz"], _moments("timestamp_ntz")),
    (_types.is_time, _one_of("time", "time", encode=_encode_time, restore=_to_times)),
    (_types.is_duration, _one_of("interval day to second", "bigint", encode=_encode_duration, restore=to_durations)),
    (_types.is_nested, _NESTED),
    (_types.is_null, _VOID),
)
storage_of = STORAGES.of


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """`TableRowValidator` for Cassandra. `key`: columns of the primary key; `lone`: the partition key, if it is one column."""

    key: tuple[str, ...]
    lone: str | None

    def __call__(self, rows: "pa.RecordBatch") -> None:
        """Refuse what `TableRowValidator` refuses, and keys that are too long."""
        super(RowValidator, self).__call__(rows)
        sized = [rows.column(name) for name in self.key if _is_sized(rows.column(name))]
        longest = sum(pc.max(pc.binary_length(column)).as_py() or 0 for column in sized)
        limit = MAX_KEY_BYTES - _OVERHEAD_BYTES * len(self.key)
        if longest > limit:
            raise self.refusal(
                f"a key of up to {longest} bytes, where Cassandra takes {limit}", "Use a shorter key, a hash of it, say."
            )

    def folded(self, name: str) -> str:
        return name

    def limits(self, kind: "pa.DataType") -> Limits | None:
        return YEARS_IN_MICROSECONDS if pa.types.is_timestamp(kind) else None

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Refuse an empty partition key, parts of milliseconds, and values that have no JSON."""
        if name == self.lone and _is_sized(column) and 0 in pc.unique(pc.binary_length(column)).to_pylist():
            raise self.refusal(f"an empty value in column {name!r}, the partition key", "Filter such rows, or fill the column.")
        if pa.types.is_timestamp(column.type) and _has_parts_of_milliseconds(column):
            raise self.refusal(
                f"parts of a millisecond in column {name!r}, which Cassandra's timestamp cannot store",
                f"Use date_trunc('MILLISECOND', {name}), or keep unix_micros({name}).",
            )
        if pa.types.is_nested(column.type):
            self.require_json(name, partial(to_json, column))


def _is_sized(column: "pa.Array") -> bool:
    return SPARK_TYPES["string"](column.type) or SPARK_TYPES["binary"](column.type)


def _has_parts_of_milliseconds(column: "pa.Array") -> bool:
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return bool(pc.any(pc.not_equal(pc.multiply(pc.divide(micros, 1000), 1000), micros)).as_py())
