"""How Arrow values are bound to Cassandra's columns, which column types store them without loss, and how they are read back."""

import datetime as dt
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.sink.table.numbers import to_reals
from penstock.sink.table.storage import (
    ColumnStorage,
    Storages,
    Values,
    always,
    anything,
    as_is,
    json_texts,
    nothing,
    to_durations,
    to_nested,
    to_texts,
    to_values,
    without_negative_scale,
)

_types = pa.types
_INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64, "varint": 64}
_EPOCH, _MILLISECOND = dt.datetime(1970, 1, 1), dt.timedelta(milliseconds=1)  # noqa: DTZ001 - the driver's own have no zone
_FIRST_DAY = 1 << 31
"""Cassandra's number for 1970-01-01."""


def bound(column: "pa.Array") -> list[Any]:
    """Return the values as the driver takes them for a prepared statement."""
    values: list[Any] = storage_of(column.type).encode(column).to_pylist()
    return values


def _takes_integer(declared: str, kind: Any) -> bool:
    return bool(_INTEGERS.get(declared, 0) >= kind.bit_width)


def _encode_date(column: "pa.Array") -> "pa.Array":
    return pa.compute.add(column.cast(pa.int32()).cast(pa.int64()), _FIRST_DAY)


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
_integers = partial(ColumnStorage.integers, takes=_takes_integer, encode=as_is, also="wider integers, varint")

_MOMENT = "parts of a millisecond; outside the years 0001 to 9999"
_TEXT = _one_of("string", "text", encode=as_is, restore=to_texts, refused="an empty one as the whole partition key")
_BINARY = _one_of("binary", "blob", encode=as_is, restore=to_values, refused="an empty one as the whole partition key")
_NESTED = _one_of(
    "struct, array, map, variant",
    "text",
    encode=json_texts,
    restore=to_nested,
    refused="times outside the years 0001 to 9999",
)
_VOID = ColumnStorage(
    spark="void", declared=always("text"), takes=anything, encode=nothing, restore=to_values, also="any but a counter"
)

STORAGES = Storages(
    "Cassandra",
    (_types.is_int8, _integers("byte", "tinyint")),
    (_types.is_int16, _integers("short", "smallint")),
    (_types.is_int32, _integers("integer", "int")),
    (_types.is_int64, _integers("long", "bigint")),
    (_types.is_float32, _one_of("float", "float", "double", encode=as_is, restore=to_reals)),
    (_types.is_float64, _one_of("double", "double", encode=as_is, restore=to_values)),
    (_types.is_boolean, _one_of("boolean", "boolean", encode=as_is, restore=to_values)),
    (_types.is_decimal, _one_of("decimal(p,s)", "decimal", encode=without_negative_scale, restore=to_values)),
    (lambda kind: _types.is_string(kind) or _types.is_large_string(kind), _TEXT),
    (lambda kind: _types.is_binary(kind) or _types.is_large_binary(kind), _BINARY),
    (_types.is_date, _one_of("date", "date", encode=_encode_date, restore=_to_days)),
    (
        lambda kind: _types.is_timestamp(kind) and kind.tz is not None,
        _one_of("timestamp", "timestamp", encode=_encode_moment, restore=_to_moments, refused=_MOMENT),
    ),
    (
        _types.is_timestamp,
        _one_of("timestamp_ntz", "timestamp", encode=_encode_moment, restore=_to_moments, refused=_MOMENT),
    ),
    (_types.is_time, _one_of("time", "time", encode=_encode_time, restore=_to_times)),
    (_types.is_duration, _one_of("interval day to second", "bigint", encode=_encode_duration, restore=to_durations)),
    (_types.is_nested, _NESTED),
    (_types.is_null, _VOID),
)
storage_of, restored = STORAGES.of, STORAGES.restored
