"""How Arrow values are sent to Redshift as bound values, which columns keep them without loss, and how they are read back.

Rows go into a staging table of Arrow's own types, from which Redshift itself assigns them to the user's columns. Values without
an exact or reliable type in Python are texts both ways: decimals, times and bytes.
"""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.sink.table.storage import (
    ColumnStorage,
    ColumnStorages,
    Decimals,
    Encode,
    Restore,
    Takes,
    Values,
    always,
    as_is,
    decimal_texts,
    moment_texts,
    size_in,
    texts_by_way_of,
    to_durations,
    to_moments,
    to_reals,
    to_texts,
    to_times,
    to_values,
)

_DECIMALS = Decimals("numeric", re.compile(r"numeric\((\d+),(-?\d+)\)"))
_SIZE = re.compile(r"(?:character varying|varbyte|binary varying)\((\d+)\)")

MOST_SCALE = 37
MOST_TEXT_BYTES = 65_535
MOST_BINARY_BYTES = MOST_TEXT_BYTES // 2
"""Bytes are sent as a text, two digits each."""
_LONG_TEXT = f"character varying({MOST_TEXT_BYTES})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage(ColumnStorage):
    """A `ColumnStorage` in which `declared` is the staging table's type, too, and `encode` returns what Python binds.

    `bound`: how a bound value becomes the column's; `{}` is its type.
    """

    bound: str = "CAST(%s AS {})"


def bound_as(kind: "pa.DataType") -> str:
    """Return the SQL expression of a bound value of `kind`."""
    storage = storage_of(kind)
    return storage.bound.format(storage.declared(kind))


def most_bytes(declared: str) -> int | None:
    """Return how many bytes a column of type `declared` takes, None for a type without a size."""
    most = MOST_TEXT_BYTES if declared.startswith("character") else MOST_BINARY_BYTES
    found = size_in(_SIZE, declared)
    return None if found is None else min(most, found)


# --- which columns will do


def _sized(*signs: str) -> Takes:
    return lambda declared, _: declared.startswith(signs) and most_bytes(declared) is not None


# --- encoding and restoring


def _zoned_texts(column: "pa.Array") -> "pa.Array":
    texts = moment_texts(column)
    return pa.array([None if text is None else f"{text}+00" for text in texts.to_pylist()], pa.string())


def _to_zoned(values: Values, kind: Any) -> "pa.Array":
    return to_moments([None if value is None else str(value).removesuffix("+00") for value in values], kind)


def _hexadecimal(column: "pa.Array") -> "pa.Array":
    return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())


def _from_hexadecimal(values: Values, kind: Any) -> "pa.Array":
    return pa.array([None if value is None else bytes.fromhex(value) for value in values], kind)


# --- the types


_YEARS = "outside the years 0001 to 9999"
_TOO_LONG = f"more bytes than the column takes, {MOST_TEXT_BYTES} at most"


_one_of = Storage.one_of
_integers = partial(
    Storage.integers,
    takes=_DECIMALS.or_integers(smallint=16, integer=32, bigint=64),
    encode=texts_by_way_of(),
    also="wider integers, numeric with enough digits",
)


def _moment(spark: str, declared: str, *, encode: Encode, restore: Restore) -> Storage:
    return _one_of(spark, declared, encode=encode, restore=restore, refused=_YEARS, read="CAST({} AS varchar(40))")


STORAGES = ColumnStorages.of_types(
    "Redshift",
    short=_integers("byte, short", "smallint"),
    integer=_integers("integer", "integer"),
    long=_integers("long", "bigint"),
    float=_one_of("float", "real", "double precision", encode=as_is, restore=to_reals),
    double=_one_of("double", "double precision", encode=as_is, restore=to_values),
    boolean=_one_of("boolean", "boolean", encode=as_is, restore=to_values),
    decimal=Storage.decimals(
        _DECIMALS,
        encode=decimal_texts,
        also="numeric with at least as many digits before and after the point",
        refused=f"the type, with more than {MOST_SCALE} digits after the point",
    ),
    string=Storage.texts(
        _LONG_TEXT,
        takes=_sized("character varying"),
        also="character varying(n)",
        refused=f"NUL (U+0000); {_TOO_LONG}; in a key, blanks at the end",
    ),
    binary=Storage(
        spark="binary",
        declared=always(f"varbyte({MOST_BINARY_BYTES})"),
        takes=_sized("varbyte", "binary varying"),
        encode=_hexadecimal,
        restore=_from_hexadecimal,
        bound=f"TO_VARBYTE(CAST(%s AS {_LONG_TEXT}), 'hex')",
        read="FROM_VARBYTE({}, 'hex')",
        also="varbyte(n)",
        refused=f"more bytes than the column takes, {MOST_BINARY_BYTES} at most",
    ),
    date=_moment("date", "date", encode=texts_by_way_of(), restore=to_texts),
    timestamp=_moment("timestamp", "timestamp with time zone", encode=_zoned_texts, restore=_to_zoned),
    timestamp_ntz=_moment("timestamp_ntz", "timestamp without time zone", encode=moment_texts, restore=to_moments),
    time=_one_of(
        "time",
        "time without time zone",
        encode=texts_by_way_of(pa.time64("us")),
        restore=to_times,
        refused="parts of a microsecond",
        read="CAST({} AS varchar(40))",
    ),
    interval=_one_of(
        "interval day to second", "bigint", encode=texts_by_way_of(pa.duration("us"), pa.int64()), restore=to_durations
    ),
    nested=Storage.json(
        _LONG_TEXT,
        takes=_sized("character varying"),
        also="character varying(n)",
        refused=f"times {_YEARS}; {_TOO_LONG}",
    ),
    void=Storage.nulls(_LONG_TEXT, takes=_sized("character varying"), also="character varying(n)"),
)
storage_of, values_of = STORAGES.of, STORAGES.values_of
