"""How Arrow values travel to PostgreSQL, in what columns they are kept without loss, and how the same values are read back.

Binary COPY never casts: a bigint that is copied into a column of doubles becomes another number without an error. So rows are
copied into a staging table whose types are Arrow's own, and from there PostgreSQL itself assigns them to the user's columns.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.nested import from_json, to_json
from penstock.sink.table.numbers import INTEGER_DIGITS, to_integers, to_reals
from penstock.sink.table.target import NotStoredError

Values: TypeAlias = list[Any]
Takes: TypeAlias = Callable[[str, Any], bool]
"""Whether a column so declared (as `format_type` says it) keeps every value of an Arrow type."""

_types = pa.types
_PLACES = re.compile(r"numeric\((\d+),(-?\d+)\)")
_SIZE = re.compile(r"character varying\((\d+)\)")
_WIDER = {8: ("smallint", "integer", "bigint"), 16: ("smallint", "integer", "bigint"), 32: ("integer", "bigint"), 64: ("bigint",)}

EPOCH_DAYS = 10_957
EPOCH_MICROSECONDS = EPOCH_DAYS * 86_400_000_000
"""PostgreSQL counts from the year 2000."""
_INFINITE = frozenset({(1 << 63) - 1, -(1 << 63)})
_INFINITE_DATE = frozenset({(1 << 31) - 1, -(1 << 31)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How one group of Arrow types is stored.

    `staged`: the staging table's type, whose binary form is what `encode` gives. `declared`: the type of a column that is
    created. `takes`: whether an existing column will do. `cast`: whether staged values need an explicit cast into the column's
    type, and are read back as text. For people: `spark` names the types, `also` the other columns that will do, `refused` the
    values that do not.
    """

    spark: str
    staged: str
    declared: Callable[[Any], str]
    takes: Takes
    encode: Callable[["pa.Array"], "pa.Array"]
    restore: Callable[[Values, Any], "pa.Array"]
    cast: bool = False
    also: str = ""
    refused: str = ""


def storage_of(kind: "pa.DataType") -> Storage:
    """How values of `kind` are stored. Raises TypeError for a type that Spark does not produce."""
    for is_kind, storage in STORAGES:
        if is_kind(kind):
            return storage
    raise TypeError(f"Arrow's {kind} has no place in PostgreSQL")


def encoded(column: "pa.Array") -> "pa.Array":
    """The column as it is copied into the staging table."""
    return storage_of(column.type).encode(column)


def restored(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """The Arrow column that `values` (as the database's loaders give them) were stored from. Raises NotStoredError."""
    try:
        return storage_of(kind).restore(list(values), kind)
    except NotStoredError:
        raise
    except (pa.ArrowException, ValueError, OverflowError, TypeError, KeyError, ArithmeticError) as cause:
        raise NotStoredError(f"expected a stored {kind}: {cause}") from cause


def cast_into(declared: str, kind: "pa.DataType") -> str:
    """The cast of staged values into a column so declared; empty where assignment does, which refuses what does not fit."""
    return declared if storage_of(kind).cast else ""


def read_as(kind: "pa.DataType") -> str:
    """The cast with which values are read back; empty for none."""
    return "text" if storage_of(kind).cast else ""


def longest_text(declared: str) -> int | None:
    """How many characters a column so declared takes, None for any number."""
    found = _SIZE.fullmatch(declared)
    return int(found[1]) if found else None


def has_map(kind: "pa.DataType") -> bool:
    """Whether a map is somewhere inside."""
    return bool(_types.is_map(kind)) or any(has_map(kind.field(index).type) for index in range(kind.num_fields))


# --- which columns will do


def _only(*names: str) -> Takes:
    return lambda declared, _: declared in names


def _takes_integer(declared: str, kind: Any) -> bool:
    return declared in _WIDER[kind.bit_width] or _takes_digits(declared, INTEGER_DIGITS[kind.bit_width], 0)


def _takes_decimal(declared: str, kind: Any) -> bool:
    return _takes_digits(declared, kind.precision - kind.scale, max(0, kind.scale))


def _takes_digits(declared: str, before: int, after: int) -> bool:
    found = _PLACES.fullmatch(declared)
    return declared == "numeric" or (found is not None and int(found[1]) - int(found[2]) >= before and int(found[2]) >= after)


def _takes_text(declared: str, _: Any) -> bool:
    return declared in {"text", "character varying"} or longest_text(declared) is not None


def _takes_json(declared: str, kind: Any) -> bool:
    return declared in {"json", "text"} or (declared == "jsonb" and not has_map(kind))


# --- encoding


def _as_is(column: "pa.Array") -> "pa.Array":
    return column


def _to_type(kind: "pa.DataType") -> Callable[["pa.Array"], "pa.Array"]:
    return lambda column: column.cast(kind)


def _encode_decimal(column: "pa.Array") -> "pa.Array":
    return column.cast(pa.decimal128(38, 0)) if column.type.scale < 0 else column


def _encode_moment(column: "pa.Array") -> "pa.Array":
    return column.cast(pa.timestamp("us", column.type.tz))


def _encode_json(column: "pa.Array") -> "pa.Array":
    return pa.array(to_json(column), pa.string())


def _encode_nothing(column: "pa.Array") -> "pa.Array":
    return pa.nulls(len(column), pa.string())


# --- restoring


def _to(values: Values, kind: Any) -> "pa.Array":
    return pa.array(values, kind)


def _to_decimal(values: Values, kind: Any) -> "pa.Array":
    if any(value is not None and not value.is_finite() for value in values):
        raise NotStoredError("expected finite numbers")
    return pa.array(values, kind)


def _to_date(values: Values, kind: Any) -> "pa.Array":
    _require_finite(values, _INFINITE_DATE)
    return pc.add(pa.array(values, pa.int64()), EPOCH_DAYS).cast(pa.int32()).cast(kind)


def _to_moment(values: Values, kind: Any) -> "pa.Array":
    _require_finite(values, _INFINITE)
    micros = pc.add_checked(pa.array(values, pa.int64()), EPOCH_MICROSECONDS)
    return micros.cast(pa.timestamp("us", kind.tz)).cast(kind)


def _require_finite(values: Values, infinite: frozenset[int]) -> None:
    if not infinite.isdisjoint(values):
        raise NotStoredError("expected a finite time")


def _to_time(values: Values, kind: Any) -> "pa.Array":
    return pa.array(values, pa.int64()).cast(pa.time64("us")).cast(kind)


def _to_duration(values: Values, kind: Any) -> "pa.Array":
    return pa.array(values, pa.int64()).cast(kind)


def _to_nested(values: Values, kind: Any) -> "pa.Array":
    return from_json(values, kind)


def _integer_type(kind: Any) -> str:
    return _WIDER[kind.bit_width][0]


def _numeric_type(kind: Any) -> str:
    return f"numeric({kind.precision - min(0, kind.scale)},{max(0, kind.scale)})"


def _always(name: str) -> Callable[[Any], str]:
    return lambda _: name


_WIDTHS = "wider integers, numeric with enough digits"
_TEXT = Storage(
    spark="string",
    staged="text",
    declared=_always("text"),
    takes=_takes_text,
    encode=_as_is,
    restore=lambda values, kind: pa.array(values, pa.string()).cast(kind),
    also="character varying, character varying(n)",
    refused="NUL (U+0000); more than n characters",
)
_BYTES = Storage(
    spark="binary", staged="bytea", declared=_always("bytea"), takes=_only("bytea"), encode=_as_is, restore=_to, refused=""
)


def _integers(spark: str, staged: str) -> Storage:
    return Storage(
        spark=spark,
        staged=staged,
        declared=_integer_type,
        takes=_takes_integer,
        encode=_to_type(pa.int16()) if staged == "smallint" else _as_is,
        restore=to_integers,
        also=_WIDTHS,
    )


_ZONED = "timestamp with time zone"
_UNZONED = "timestamp without time zone"
_BEFORE = "before 4714-11-24 BC"


def _moments(spark: str, declared: str) -> Storage:
    return Storage(
        spark=spark,
        staged=declared,
        declared=_always(declared),
        takes=_only(declared, declared.replace("timestamp", "timestamp(6)", 1)),
        encode=_encode_moment,
        restore=_to_moment,
        refused=_BEFORE,
    )


STORAGES: tuple[tuple[Callable[[Any], bool], Storage], ...] = (
    (lambda kind: _types.is_int8(kind) or _types.is_int16(kind), _integers("byte, short", "smallint")),
    (_types.is_int32, _integers("integer", "integer")),
    (_types.is_int64, _integers("long", "bigint")),
    (
        _types.is_float32,
        Storage(
            spark="float",
            staged="real",
            declared=_always("real"),
            takes=_only("real", "double precision"),
            encode=_as_is,
            restore=to_reals,
            also="double precision",
        ),
    ),
    (
        _types.is_float64,
        Storage(
            spark="double",
            staged="double precision",
            declared=_always("double precision"),
            takes=_only("double precision"),
            encode=_as_is,
            restore=_to,
        ),
    ),
    (
        _types.is_boolean,
        Storage(
            spark="boolean", staged="boolean", declared=_always("boolean"), takes=_only("boolean"), encode=_as_is, restore=_to
        ),
    ),
    (
        _types.is_decimal,
        Storage(
            spark="decimal(p,s)",
            staged="numeric",
            declared=_numeric_type,
            takes=_takes_decimal,
            encode=_encode_decimal,
            restore=_to_decimal,
            also="numeric, numeric with at least as many digits before and after the point",
        ),
    ),
    (lambda kind: _types.is_string(kind) or _types.is_large_string(kind), _TEXT),
    (lambda kind: _types.is_binary(kind) or _types.is_large_binary(kind), _BYTES),
    (
        _types.is_date,
        Storage(
            spark="date",
            staged="date",
            declared=_always("date"),
            takes=_only("date"),
            encode=_as_is,
            restore=_to_date,
            refused=f"{_BEFORE}, after 5874897-12-31",
        ),
    ),
    (lambda kind: _types.is_timestamp(kind) and kind.tz is not None, _moments("timestamp", _ZONED)),
    (_types.is_timestamp, _moments("timestamp_ntz", _UNZONED)),
    (
        _types.is_time,
        Storage(
            spark="time",
            staged="time without time zone",
            declared=_always("time without time zone"),
            takes=_only("time without time zone", "time(6) without time zone"),
            encode=_to_type(pa.time64("us")),
            restore=_to_time,
            refused="parts of a microsecond",
        ),
    ),
    (
        _types.is_duration,
        Storage(
            spark="interval day to second",
            staged="interval",
            declared=_always("interval"),
            takes=_only("interval", "interval(6)"),
            encode=_to_type(pa.duration("us")),
            restore=_to_duration,
        ),
    ),
    (
        _types.is_nested,
        Storage(
            spark="struct, array, map, variant",
            staged="text",
            declared=_always("json"),
            takes=_takes_json,
            encode=_encode_json,
            restore=_to_nested,
            cast=True,
            also="text; jsonb, unless a map is inside: jsonb does not keep its order",
            refused="times outside the years 0001 to 9999; NUL in jsonb",
        ),
    ),
    (
        _types.is_null,
        Storage(
            spark="void",
            staged="text",
            declared=_always("text"),
            takes=lambda _declared, _kind: True,
            encode=_encode_nothing,
            restore=_to,
            cast=True,
            also="any",
        ),
    ),
)
