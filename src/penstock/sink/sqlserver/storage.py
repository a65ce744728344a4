"""How Arrow values are sent to SQL Server as Python's, which columns keep them without loss, and how they are read back.

Rows go into a staging table of Arrow's own types, from which SQL Server itself assigns them to the user's columns.
"""

import re
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.storage import (
    ColumnStorage,
    ColumnStorages,
    Decimals,
    Takes,
    Values,
    always,
    as_is,
    cast_to,
    size_in,
    to_durations,
    to_plain_moments,
    to_reals,
    to_values,
    without_negative_scale,
)

_DECIMALS = Decimals("decimal", re.compile(r"(?:decimal|numeric)\((\d+),(\d+)\)"))
_SIZE = re.compile(r"(?:nvarchar|varbinary)\((\d+)\)")
_BEYOND = "[\U00010000-\U0010ffff]"
"""Characters that are two units of UTF-16."""
KEY_TYPES = {"nvarchar(max)": "nvarchar(255)", "varbinary(max)": "varbinary(255)"}
"""Types of key columns in a created table: an index takes 1700 bytes, and a character has two or four."""


def most_units(declared: str) -> int | None:
    """Return how many UTF-16 units of a text, or bytes, a column of type `declared` takes; None if it has no limit."""
    return size_in(_SIZE, declared)


def units_of(texts: "pa.Array") -> "pa.Array":
    """Return the number of UTF-16 units of each text."""
    return pc.add(pc.utf8_length(texts), pc.count_substring_regex(texts, _BEYOND))


# --- which columns will do


def _sized(sign: str) -> Takes:
    return lambda declared, _: declared == f"{sign}(max)" or (declared.startswith(sign) and most_units(declared) is not None)


# --- encoding and restoring


def _moments(column: "pa.Array") -> "pa.Array":
    return column.cast(pa.timestamp("us", None if column.type.tz is None else "UTC"))


def _to_moments(values: Values, kind: Any) -> "pa.Array":
    """Convert timestamps with an offset, or without one, which are in UTC."""
    return to_plain_moments(values).cast(pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)


def _to_times(values: Values, kind: Any) -> "pa.Array":
    return pa.array(values, pa.time64("us")).cast(kind)


# --- the types


_YEARS = "outside the years 0001 to 9999"
_NO_NUMBER = "NaN and the infinities; numbers nearer to zero than the least normal one"


_one_of = ColumnStorage.one_of
_integers = partial(
    ColumnStorage.integers,
    takes=_DECIMALS.or_integers(smallint=16, int=32, bigint=64),
    encode=as_is,
    also="wider integers, decimal with enough digits",
)


STORAGES: ColumnStorages[ColumnStorage] = ColumnStorages.of_types(
    "SQL Server",
    short=_integers("byte, short", "smallint"),
    integer=_integers("integer", "int"),
    long=_integers("long", "bigint"),
    float=_one_of("float", "real", "float", encode=as_is, restore=to_reals, refused=_NO_NUMBER),
    double=_one_of("double", "float", encode=as_is, restore=to_values, refused=_NO_NUMBER),
    boolean=_one_of("boolean", "bit", encode=as_is, restore=to_values),
    decimal=ColumnStorage.decimals(
        _DECIMALS,
        encode=without_negative_scale,
        also="decimal or numeric with at least as many digits before and after the point",
    ),
    string=ColumnStorage.texts(
        "nvarchar(max)",
        takes=_sized("nvarchar"),
        also="nvarchar(n)",
        refused="more than n units of UTF-16; in a key, blanks at the end",
    ),
    binary=ColumnStorage(
        spark="binary",
        declared=always("varbinary(max)"),
        takes=_sized("varbinary"),
        encode=as_is,
        restore=to_values,
        also="varbinary(n)",
        refused="more than n bytes; in a key, zeros at the end",
    ),
    date=_one_of("date", "date", encode=as_is, restore=to_values, refused=_YEARS),
    timestamp=_one_of(
        "timestamp",
        "datetimeoffset(6)",
        "datetimeoffset(7)",
        "datetime2(6)",
        "datetime2(7)",
        encode=_moments,
        restore=_to_moments,
        refused=_YEARS,
    ),
    timestamp_ntz=_one_of("timestamp_ntz", "datetime2(6)", "datetime2(7)", encode=_moments, restore=_to_moments, refused=_YEARS),
    time=_one_of(
        "time", "time(6)", "time(7)", encode=cast_to(pa.time64("us")), restore=_to_times, refused="parts of a microsecond"
    ),
    interval=_one_of(
        "interval day to second",
        "bigint",
        encode=lambda column: column.cast(pa.duration("us")).cast(pa.int64()),
        restore=to_durations,
    ),
    nested=ColumnStorage.json(
        "nvarchar(max)",
        takes=_sized("nvarchar"),
        also="nvarchar(n)",
        refused=f"times {_YEARS}; more than n units of UTF-16",
    ),
    void=ColumnStorage.nulls("nvarchar(max)", takes=_sized("nvarchar"), also="nvarchar(n)"),
)
storage_of, values_of = STORAGES.of, STORAGES.values_of
