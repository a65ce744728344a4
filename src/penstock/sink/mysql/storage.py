"""How Arrow values travel to MySQL as text, in what columns they are kept without loss, and how the same values are read back.

Rows go into a staging table of Arrow's own types, and from there MySQL itself assigns them to the user's columns, in strict mode.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.sink.table.nested import from_json, to_json
from penstock.sink.table.numbers import INTEGER_DIGITS, to_integers, to_reals
from penstock.sink.table.target import NotStoredError

Values: TypeAlias = list[Any]
Takes: TypeAlias = Callable[[str, Any], bool]
"""Whether a column so declared (as `Column.declared` says it) keeps every value of an Arrow type."""

_types = pa.types
_PLACES = re.compile(r"decimal\((\d+),(\d+)\)")
_SIZE = re.compile(r"(?:varchar|varbinary)\((\d+)\)")
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BYTES = {"tiny": (1 << 8) - 1, "": (1 << 16) - 1, "medium": (1 << 24) - 1, "long": (1 << 32) - 1}
KEY_SIZE = 255
"""Characters or bytes of a key's column that is created: an index takes 3072 bytes, a character up to four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How one group of Arrow types is stored.

    `declared`: the type of a column that is created, and of the staging table's. `takes`: whether an existing column will do.
    `encode` gives texts, or bytes, as which the values travel; `in_quotes`: those texts can hold anything. `read`: how the column
    is read, with `{}` for its name. For people: `spark` names the types, `also` the other columns that will do, `refused` the
    values that do not.
    """

    spark: str
    declared: Callable[[Any], str]
    takes: Takes
    encode: Callable[["pa.Array"], "pa.Array"]
    restore: Callable[[Values, Any], "pa.Array"]
    in_quotes: bool = False
    read: str = "{}"
    also: str = ""
    refused: str = ""


def storage_of(kind: "pa.DataType") -> Storage:
    """How values of `kind` are stored. Raises TypeError for a type that Spark does not produce."""
    for is_kind, storage in STORAGES:
        if is_kind(kind):
            return storage
    raise TypeError(f"Arrow's {kind} has no place in MySQL")


def encoded(column: "pa.Array") -> "pa.Array":
    """The column as it travels: large_binary, of texts in UTF-8 or of bytes."""
    return storage_of(column.type).encode(column).cast(pa.large_binary())


def restored(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """The Arrow column that `values` (numbers, texts and bytes) were stored from. Raises NotStoredError."""
    try:
        return storage_of(kind).restore(list(values), kind)
    except NotStoredError:
        raise
    except (pa.ArrowException, ValueError, OverflowError, TypeError, KeyError, ArithmeticError) as cause:
        raise NotStoredError(f"expected a stored {kind}: {cause}") from cause


def declared_as_key(kind: "pa.DataType") -> str:
    """The type of a key's column that is created: an index takes no long texts."""
    declared = storage_of(kind).declared(kind)
    return {"longtext": f"varchar({KEY_SIZE})", "longblob": f"varbinary({KEY_SIZE})"}.get(declared, declared)


def most_characters(declared: str) -> int | None:
    """How many characters (bytes, of varbinary) a column so declared takes, None if bytes alone count."""
    found = _SIZE.fullmatch(declared)
    return int(found[1]) if found else None


def most_bytes(declared: str) -> int | None:
    """How many bytes a text or blob so declared takes, None for others."""
    for sign in ("text", "blob"):
        if declared.removesuffix(sign) in _BYTES and declared.endswith(sign):
            return _BYTES[declared.removesuffix(sign)]
    return None


# --- which columns will do


def _only(*names: str) -> Takes:
    return lambda declared, _: declared in names


def _takes_integer(declared: str, kind: Any) -> bool:
    if declared == "tinyint(1)":
        return bool(kind.bit_width == 8)
    return _INTEGERS.get(declared, 0) >= kind.bit_width or _takes_digits(declared, INTEGER_DIGITS[kind.bit_width], 0)


def _takes_decimal(declared: str, kind: Any) -> bool:
    return _takes_digits(declared, kind.precision - kind.scale, max(0, kind.scale))


def _takes_digits(declared: str, before: int, after: int) -> bool:
    found = _PLACES.fullmatch(declared)
    return found is not None and int(found[1]) - int(found[2]) >= before and int(found[2]) >= after


def _takes_text(declared: str, _: Any) -> bool:
    return (declared.startswith("varchar") and most_characters(declared) is not None) or _is_long(declared, "text")


def _takes_bytes(declared: str, _: Any) -> bool:
    return declared.startswith("varbinary") or _is_long(declared, "blob")


def _takes_json(declared: str, _: Any) -> bool:
    return _is_long(declared, "text")


def _is_long(declared: str, sign: str) -> bool:
    return declared.endswith(sign) and most_bytes(declared) is not None


# --- encoding


def _as_is(column: "pa.Array") -> "pa.Array":
    return column


def _by_way_of(*kinds: "pa.DataType") -> Callable[["pa.Array"], "pa.Array"]:
    """The text of the values once they were cast to `kinds`, one after the other."""

    def encode(column: "pa.Array") -> "pa.Array":
        for kind in (*kinds, pa.string()):
            column = column.cast(kind)
        return column

    return encode


def _encode_decimal(column: "pa.Array") -> "pa.Array":
    return (column.cast(pa.decimal128(38, 0)) if column.type.scale < 0 else column).cast(pa.string())


def _encode_moment(column: "pa.Array") -> "pa.Array":
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())


def _encode_json(column: "pa.Array") -> "pa.Array":
    return pa.array(to_json(column), pa.string())


def _encode_nothing(column: "pa.Array") -> "pa.Array":
    return pa.nulls(len(column), pa.string())


# --- restoring


def _to(values: Values, kind: Any) -> "pa.Array":
    return pa.array(values, kind)


def _to_text(values: Values, kind: Any) -> "pa.Array":
    return pa.array(values, pa.string()).cast(kind)


def _to_boolean(values: Values, kind: Any) -> "pa.Array":
    if not {0, 1, None}.issuperset(values):
        raise NotStoredError("expected 0 or 1")
    return pa.array([None if value is None else value == 1 for value in values], kind)


def _to_moment(values: Values, kind: Any) -> "pa.Array":
    return pa.array(values, pa.string()).cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)


def _to_time(values: Values, kind: Any) -> "pa.Array":
    moments = [None if value is None else f"1970-01-01 {value}" for value in values]  # Arrow reads no times of day
    return pa.array(moments, pa.string()).cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.time64("us")).cast(kind)


def _to_duration(values: Values, kind: Any) -> "pa.Array":
    return pa.array(values, pa.int64()).cast(kind)


def _to_nested(values: Values, kind: Any) -> "pa.Array":
    return from_json(values, kind)


def _decimal_type(kind: Any) -> str:
    return f"decimal({kind.precision - min(0, kind.scale)},{max(0, kind.scale)})"


def _always(name: str) -> Callable[[Any], str]:
    return lambda _: name


_UTF8 = "of character set utf8mb4"
_NO_ZONE = "outside the years 0001 to 9999"


def _integers(spark: str, declared: str) -> Storage:
    return Storage(
        spark=spark,
        declared=_always(declared),
        takes=_takes_integer,
        encode=_by_way_of(),
        restore=to_integers,
        also="wider signed integers, decimal with enough digits",
    )


STORAGES: tuple[tuple[Callable[[Any], bool], Storage], ...] = (
    (lambda kind: _types.is_int8(kind) or _types.is_int16(kind), _integers("byte, short", "smallint")),
    (_types.is_int32, _integers("integer", "int")),
    (_types.is_int64, _integers("long", "bigint")),
    (
        _types.is_float32,
        Storage(
            spark="float",
            declared=_always("float"),
            takes=_only("float", "double"),
            encode=_by_way_of(pa.float64()),  # whose digits tell every float exactly
            restore=to_reals,
            read="{} * 1e0",  # a float alone is shown with six digits
            also="double",
            refused="NaN and the infinities",
        ),
    ),
    (
        _types.is_float64,
        Storage(
            spark="double",
            declared=_always("double"),
            takes=_only("double"),
            encode=_by_way_of(),
            restore=_to,
            refused="NaN and the infinities",
        ),
    ),
    (
        _types.is_boolean,
        Storage(
            spark="boolean",
            declared=_always("tinyint(1)"),
            takes=_only("tinyint(1)", "tinyint"),
            encode=_by_way_of(pa.int8()),
            restore=_to_boolean,
            also="tinyint",
        ),
    ),
    (
        _types.is_decimal,
        Storage(
            spark="decimal(p,s)",
            declared=_decimal_type,
            takes=_takes_decimal,
            encode=_encode_decimal,
            restore=_to,
            also="decimal with at least as many digits before and after the point",
        ),
    ),
    (
        lambda kind: _types.is_string(kind) or _types.is_large_string(kind),
        Storage(
            spark="string",
            declared=_always("longtext"),
            takes=_takes_text,
            encode=_as_is,
            restore=_to_text,
            in_quotes=True,
            also=f"varchar(n), tinytext, text, mediumtext, {_UTF8}",
            refused="more than n characters, or bytes than the column takes",
        ),
    ),
    (
        lambda kind: _types.is_binary(kind) or _types.is_large_binary(kind),
        Storage(
            spark="binary",
            declared=_always("longblob"),
            takes=_takes_bytes,
            encode=_as_is,
            restore=_to,
            in_quotes=True,
            also="varbinary(n), tinyblob, blob, mediumblob",
            refused="more bytes than the column takes",
        ),
    ),
    (
        _types.is_date,
        Storage(
            spark="date",
            declared=_always("date"),
            takes=_only("date"),
            encode=_by_way_of(),
            restore=_to_text,
            refused=_NO_ZONE,
        ),
    ),
    (
        lambda kind: _types.is_timestamp(kind) and kind.tz is not None,
        Storage(
            spark="timestamp",
            declared=_always("datetime(6)"),
            takes=_only("datetime(6)", "timestamp(6)"),
            encode=_encode_moment,
            restore=_to_moment,
            also="timestamp(6)",
            refused=f"{_NO_ZONE}; in timestamp(6) outside 1970-01-01 00:00:01 to 2038-01-19 03:14:07.999999",
        ),
    ),
    (
        _types.is_timestamp,
        Storage(
            spark="timestamp_ntz",
            declared=_always("datetime(6)"),
            takes=_only("datetime(6)"),
            encode=_encode_moment,
            restore=_to_moment,
            refused=_NO_ZONE,
        ),
    ),
    (
        _types.is_time,
        Storage(
            spark="time",
            declared=_always("time(6)"),
            takes=_only("time(6)"),
            encode=_by_way_of(pa.time64("us")),
            restore=_to_time,
            refused="parts of a microsecond",
        ),
    ),
    (
        _types.is_duration,
        Storage(
            spark="interval day to second",
            declared=_always("bigint"),
            takes=_only("bigint"),
            encode=_by_way_of(pa.duration("us"), pa.int64()),
            restore=_to_duration,
        ),
    ),
    (
        _types.is_nested,
        Storage(
            spark="struct, array, map, variant",
            declared=_always("longtext"),
            takes=_takes_json,
            encode=_encode_json,
            restore=_to_nested,
            in_quotes=True,
            also=f"tinytext, text, mediumtext, {_UTF8}; MariaDB's json",
            refused="times outside the years 0001 to 9999; more bytes than the column takes",
        ),
    ),
    (
        _types.is_null,
        Storage(
            spark="void",
            declared=_always("longtext"),
            takes=lambda _declared, _kind: True,
            encode=_encode_nothing,
            restore=_to,
            also="any",
        ),
    ),
)
