"""Storage of Arrow values in PostgreSQL: their encoding, the column types that keep them without loss, and reading them back.

Binary COPY never casts: a bigint that is copied into a column of doubles becomes another number without an error. So where the
user's columns have other types than Arrow's own, rows are copied into a staging table of Arrow's types. From there PostgreSQL
itself assigns them.
"""

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.storage import (
    ColumnStorage,
    ColumnStorages,
    Decimals,
    Values,
    anything,
    as_is,
    cast_to,
    size_in,
    to_durations,
    to_reals,
    to_values,
    without_negative_scale,
)
from penstock.sink.table.target import NotStoredError

_DECIMALS = Decimals("numeric", re.compile(r"numeric\((\d+),(-?\d+)\)"), unlimited="numeric")
_SIZE = re.compile(r"character varying\((\d+)\)")
_MODIFIER = re.compile(r"\([\d,-]+\)")
_SENT_AS_TEXT = frozenset({"text", "character varying", "json"})

EPOCH_DAYS = 10_957
EPOCH_MICROSECONDS = EPOCH_DAYS * 86_400_000_000
"""PostgreSQL counts days and microseconds from the year 2000."""
_INFINITE = frozenset({(1 << 63) - 1, -(1 << 63)})
_INFINITE_DATE = frozenset({(1 << 31) - 1, -(1 << 31)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage(ColumnStorage):
    """A `ColumnStorage` for PostgreSQL.

    `staged`: the type in the staging table, whose binary form `encode` produces. `cast`: staged values need an explicit cast into
    the column's type.
    """

    staged: str
    cast: bool = False


def encoded(column: "pa.Array") -> "pa.Array":
    """Return the column in the form in which it is copied into the staging table."""
    return storage_of(column.type).encode(column)


def copies_as_is(declared: str, kind: "pa.DataType") -> bool:
    """Return whether binary COPY of values of `kind` into a column of type `declared`, which takes them, preserves them.

    COPY applies the type's modifiers as an assignment does: a text that is too long is refused.
    """
    bare, staged = _MODIFIER.sub("", declared), storage_of(kind).staged
    return bare == staged or (staged == "text" and bare in _SENT_AS_TEXT)


def cast_into(declared: str, kind: "pa.DataType") -> str:
    """Return the expression that assigns staged values to a column of type `declared`: a cast only where SQL needs one."""
    return "{}::" + declared.replace("{", "{{").replace("}", "}}") if storage_of(kind).cast else "{}"


def longest_text(declared: str) -> int | None:
    """Return how many characters a column of type `declared` takes, None if the number is unlimited."""
    return size_in(_SIZE, declared)


def has_map(kind: "pa.DataType") -> bool:
    """Return whether the type is a map or contains one."""
    return bool(pa.types.is_map(kind)) or any(has_map(kind.field(index).type) for index in range(kind.num_fields))


# --- column types that keep every value

_takes_integer = _DECIMALS.or_integers(smallint=16, integer=32, bigint=64)


def _takes_text(declared: str, _: Any) -> bool:
    return declared in {"text", "character varying"} or longest_text(declared) is not None


def _takes_json(declared: str, kind: Any) -> bool:
    return declared in {"json", "text"} or (declared == "jsonb" and not has_map(kind))


# --- encoding


def _encode_moment(column: "pa.Array") -> "pa.Array":
    return column.cast(pa.timestamp("us", column.type.tz))


# --- restoring


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


def _one_of(spark: str, declared: str, *also: str, **more: Any) -> Storage:
    """Return a storage whose staging type is the type of a created column."""
    return Storage.one_of(spark, declared, *also, staged=declared, **more)


def _integers(spark: str, staged: str) -> Storage:
    encode = cast_to(pa.int16()) if staged == "smallint" else as_is
    also = "wider integers, numeric with enough digits"
    return Storage.integers(spark, staged, takes=_takes_integer, encode=encode, also=also, staged=staged)


_BEFORE = "before 4714-11-24 BC"


def _moments(spark: str, declared: str) -> Storage:
    of_microseconds = declared.replace("timestamp", "timestamp(6)", 1)
    return _one_of(spark, declared, same=[of_microseconds], encode=_encode_moment, restore=_to_moment, refused=_BEFORE)


STORAGES = ColumnStorages.of_types(
    "PostgreSQL",
    short=_integers("byte, short", "smallint"),
    integer=_integers("integer", "integer"),
    long=_integers("long", "bigint"),
    float=_one_of("float", "real", "double precision", encode=as_is, restore=to_reals),
    double=_one_of("double", "double precision", encode=as_is, restore=to_values),
    boolean=_one_of("boolean", "boolean", encode=as_is, restore=to_values),
    decimal=Storage.decimals(
        _DECIMALS,
        staged="numeric",
        encode=without_negative_scale,
        restore=_to_decimal,
        also="numeric, numeric with at least as many digits before and after the point",
    ),
    string=Storage.texts(
        "text",
        staged="text",
        takes=_takes_text,
        also="character varying, character varying(n)",
        refused="NUL (U+0000); more than n characters",
    ),
    binary=_one_of("binary", "bytea", encode=as_is, restore=to_values),
    date=_one_of("date", "date", encode=as_is, restore=_to_date, refused=f"{_BEFORE}, after 5874897-12-31"),
    timestamp=_moments("timestamp", "timestamp with time zone"),
    timestamp_ntz=_moments("timestamp_ntz", "timestamp without time zone"),
    time=_one_of(
        "time",
        "time without time zone",
        same=["time(6) without time zone"],
        encode=cast_to(pa.time64("us")),
        restore=_to_time,
        refused="parts of a microsecond",
    ),
    interval=_one_of(
        "interval day to second", "interval", same=["interval(6)"], encode=cast_to(pa.duration("us")), restore=to_durations
    ),
    nested=Storage.json(
        "json",
        staged="text",
        takes=_takes_json,
        cast=True,
        read="{}::text",
        also="text; jsonb, unless a map is inside: jsonb does not keep its order",
        refused="times outside the years 0001 to 9999; NUL in jsonb",
    ),
    void=Storage.nulls("text", staged="text", takes=anything, cast=True, read="{}::text", also="any"),
)
storage_of = STORAGES.of
