"""How Arrow values are sent to SQL Server as Python's, which columns keep them without loss, and how they are read back.

Rows go into a staging table of Arrow's own types, from which SQL Server itself assigns them to the user's columns.
"""

import re
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.numbers import INTEGER_DIGITS, to_integers, to_reals
from penstock.sink.table.storage import (
    ColumnStorage,
    Encode,
    Restore,
    Storages,
    Takes,
    Values,
    always,
    as_is,
    digits_of,
    has_digits,
    json_texts,
    nothing,
    only,
    to_durations,
    to_nested,
    to_texts,
    to_values,
    without_negative_scale,
)
from penstock.sink.table.target import NotStoredError

_types = pa.types
_PLACES = re.compile(r"(?:decimal|numeric)\((\d+),(\d+)\)")
_SIZE = re.compile(r"(?:nvarchar|varbinary)\((\d+)\)")
_INTEGERS = {"smallint": 16, "int": 32, "bigint": 64}
_BEYOND = "[\U00010000-\U0010ffff]"
"""Characters that are two units of UTF-16."""
KEY_SIZE = 255
"""Characters or bytes of a key's column that is created: an index takes 1700 bytes, and a character has two or four."""


def values_of(column: "pa.Array") -> list[Any]:
    """Return the values to load."""
    values: list[Any] = storage_of(column.type).encode(column).to_pylist()
    return values


def declared_as_key(kind: "pa.DataType") -> str:
    """Return the type of a key's column that is created: an index takes no long texts."""
    return storage_of(kind).declared(kind).replace("(max)", f"({KEY_SIZE})")


def most_units(declared: str) -> int | None:
    """Return how many UTF-16 units of a text, or bytes, a column so declared takes; None if it has no limit."""
    found = _SIZE.fullmatch(declared)
    return int(found[1]) if found else None


def units_of(texts: "pa.Array") -> "pa.Array":
    """Return the number of UTF-16 units of each text."""
    return pc.add(pc.utf8_length(texts), pc.count_substring_regex(texts, _BEYOND))


# --- which columns will do


def _takes_integer(declared: str, kind: Any) -> bool:
    return _INTEGERS.get(declared, 0) >= kind.bit_width or _takes_digits(declared, INTEGER_DIGITS[kind.bit_width], 0)


def _takes_decimal(declared: str, kind: Any) -> bool:
    precision, scale = digits_of(kind)
    return _takes_digits(declared, precision - scale, scale)


def _takes_digits(declared: str, before: int, after: int) -> bool:
    return has_digits(_PLACES.fullmatch(declared), before, after)


def _sized(sign: str) -> Takes:
    return lambda declared, _: declared == f"{sign}(max)" or (declared.startswith(sign) and most_units(declared) is not None)


# --- encoding and restoring


def _by_way_of(kind: "pa.DataType") -> Encode:
    return lambda column: column.cast(kind)


def _moments(column: "pa.Array") -> "pa.Array":
    return column.cast(pa.timestamp("us", None if column.type.tz is None else "UTC"))


def _to_moments(values: Values, kind: Any) -> "pa.Array":
    """Convert timestamps of a column with an offset, or without one: those are in UTC."""
    naive = [None if value is None else _without_offset(value) for value in values]
    return pa.array(naive, pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)


def _without_offset(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise NotStoredError(f"expected a date and a time, found {type(value).__name__}")
    return value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value


def _to_times(values: Values, kind: Any) -> "pa.Array":
    return pa.array(values, pa.time64("us")).cast(kind)


# --- the types


def _decimal_type(kind: Any) -> str:
    precision, scale = digits_of(kind)
    return f"decimal({precision},{scale})"


_YEARS = "outside the years 0001 to 9999"
_NO_NUMBER = "NaN and the infinities; numbers nearer to zero than the least normal one"


def _one_of(spark: str, declared: str, *also: str, encode: Encode, restore: Restore, refused: str = "") -> ColumnStorage:
    """Return a storage for columns of these types alone."""
    return ColumnStorage(
        spark=spark,
        declared=always(declared),
        takes=only(declared, *also),
        encode=encode,
        restore=restore,
        also=", ".join(also),
        refused=refused,
    )


def _integers(spark: str, declared: str) -> ColumnStorage:
    return ColumnStorage(
        spark=spark,
        declared=always(declared),
        takes=_takes_integer,
        encode=as_is,
        restore=to_integers,
        also="wider integers, decimal with enough digits",
    )


_DECIMAL = ColumnStorage(
    spark="decimal(p,s)",
    declared=_decimal_type,
    takes=_takes_decimal,
    encode=without_negative_scale,
    restore=to_values,
    also="decimal or numeric with at least as many digits before and after the point",
)
_TEXT = ColumnStorage(
    spark="string",
    declared=always("nvarchar(max)"),
    takes=_sized("nvarchar"),
    encode=as_is,
    restore=to_texts,
    also="nvarchar(n)",
    refused="more than n units of UTF-16; in a key, blanks at the end",
)
_BINARY = ColumnStorage(
    spark="binary",
    declared=always("varbinary(max)"),
    takes=_sized("varbinary"),
    encode=as_is,
    restore=to_values,
    also="varbinary(n)",
    refused="more than n bytes; in a key, zeros at the end",
)
_NESTED = ColumnStorage(
    spark="struct, array, map, variant",
    declared=always("nvarchar(max)"),
    takes=_sized("nvarchar"),
    encode=json_texts,
    restore=to_nested,
    also="nvarchar(n)",
    refused=f"times {_YEARS}; more than n units of UTF-16",
)
_VOID = ColumnStorage(
    spark="void",
    declared=always("nvarchar(max)"),
    takes=_sized("nvarchar"),
    encode=nothing,
    restore=to_values,
    also="nvarchar(n)",
)

STORAGES: Storages[ColumnStorage] = Storages(
    "SQL Server",
    (lambda kind: _types.is_int8(kind) or _types.is_int16(kind), _integers("byte, short", "smallint")),
    (_types.is_int32, _integers("integer", "int")),
    (_types.is_int64, _integers("long", "bigint")),
    (_types.is_float32, _one_of("float", "real", "float", encode=as_is, restore=to_reals, refused=_NO_NUMBER)),
    (_types.is_float64, _one_of("double", "float", encode=as_is, restore=to_values, refused=_NO_NUMBER)),
    (_types.is_boolean, _one_of("boolean", "bit", encode=as_is, restore=to_values)),
    (_types.is_decimal, _DECIMAL),
    (lambda kind: _types.is_string(kind) or _types.is_large_string(kind), _TEXT),
    (lambda kind: _types.is_binary(kind) or _types.is_large_binary(kind), _BINARY),
    (_types.is_date, _one_of("date", "date", encode=as_is, restore=to_values, refused=_YEARS)),
    (
        lambda kind: _types.is_timestamp(kind) and kind.tz is not None,
        _one_of(
            "timestamp",
            "datetimeoffset(6)",
            "datetimeoffset(7)",
            "datetime2(6)",
            "datetime2(7)",
            encode=_moments,
            restore=_to_moments,
            refused=_YEARS,
        ),
    ),
    (
        _types.is_timestamp,
        _one_of("timestamp_ntz", "datetime2(6)", "datetime2(7)", encode=_moments, restore=_to_moments, refused=_YEARS),
    ),
    (
        _types.is_time,
        _one_of(
            "time", "time(6)", "time(7)", encode=_by_way_of(pa.time64("us")), restore=_to_times, refused="parts of a microsecond"
        ),
    ),
    (
        _types.is_duration,
        _one_of(
            "interval day to second",
            "bigint",
            encode=lambda column: column.cast(pa.duration("us")).cast(pa.int64()),
            restore=to_durations,
        ),
    ),
    (_types.is_nested, _NESTED),
    (_types.is_null, _VOID),
)
storage_of, restored = STORAGES.of, STORAGES.restored
