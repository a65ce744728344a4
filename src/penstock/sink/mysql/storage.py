"""Storage of Arrow values in MySQL: their texts, the column types that keep them without loss, and reading them back.

Staged rows, such as those written by key, first go into columns of Arrow's own types. From there MySQL assigns them to the
user's columns, in strict mode. Otherwise LOAD DATA assigns the same texts to the user's columns, and warns of any change.
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
    always,
    anything,
    as_is,
    decimal_texts,
    moment_texts,
    size_in,
    texts_by_way_of,
    to_durations,
    to_flags,
    to_moments,
    to_reals,
    to_texts,
    to_times,
    to_values,
)

_DECIMALS = Decimals("decimal", re.compile(r"decimal\((\d+),(\d+)\)"))
_SIZE = re.compile(r"(?:varchar|varbinary)\((\d+)\)")
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BYTES = {"tiny": (1 << 8) - 1, "": (1 << 16) - 1, "medium": (1 << 24) - 1, "long": (1 << 32) - 1}
KEY_TYPES = {"longtext": "varchar(255)", "longblob": "varbinary(255)"}
"""Types of key columns in a created table: an index takes 3072 bytes, and a character has up to four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage(ColumnStorage):
    """A `ColumnStorage` for MySQL; `declared` is the type in the staging table, too.

    `encode` produces the texts or bytes that are sent; `in_quotes`: they can hold any character.
    """

    in_quotes: bool = False


def encoded(column: "pa.Array") -> "pa.Array":
    """Return the column as it is sent: large_binary, of UTF-8 texts or of bytes."""
    return storage_of(column.type).encode(column).cast(pa.large_binary())


def most_characters(declared: str) -> int | None:
    """Return the most characters (bytes of a varbinary) that the column type takes, None if only bytes are limited."""
    return size_in(_SIZE, declared)


def most_bytes(declared: str) -> int | None:
    """Return the most bytes that a text or blob type takes, None for other types."""
    for sign in ("text", "blob"):
        if declared.removesuffix(sign) in _BYTES and declared.endswith(sign):
            return _BYTES[declared.removesuffix(sign)]
    return None


# --- column types that keep every value


def _takes_integer(declared: str, kind: Any) -> bool:
    if declared == "tinyint(1)":
        return bool(kind.bit_width == 8)
    return _INTEGERS.get(declared, 0) >= kind.bit_width or _DECIMALS.takes_integers(declared, kind)


def _takes_text(declared: str, _: Any) -> bool:
    return (declared.startswith("varchar") and most_characters(declared) is not None) or _is_long(declared, "text")


def _takes_bytes(declared: str, _: Any) -> bool:
    return declared.startswith("varbinary") or _is_long(declared, "blob")


def _takes_json(declared: str, _: Any) -> bool:
    return _is_long(declared, "text")


def _is_long(declared: str, sign: str) -> bool:
    return declared.endswith(sign) and most_bytes(declared) is not None


# --- created columns


_UTF8 = "of character set utf8mb4"
_NO_ZONE = "outside the years 0001 to 9999"
_NOT_FINITE = "NaN and the infinities"


_one_of = Storage.one_of
_integers = partial(
    Storage.integers, takes=_takes_integer, encode=texts_by_way_of(), also="wider signed integers, decimal with enough digits"
)


STORAGES = ColumnStorages.of_types(
    "MySQL",
    short=_integers("byte, short", "smallint"),
    integer=_integers("integer", "int"),
    long=_integers("long", "bigint"),
    float=_one_of(
        "float",
        "float",
        "double",
        encode=texts_by_way_of(pa.float64()),  # its digits identify every float
        restore=to_reals,
        read="{} * 1e0",  # a float alone is shown with six digits
        refused=_NOT_FINITE,
    ),
    double=_one_of("double", "double", encode=texts_by_way_of(), restore=to_values, refused=_NOT_FINITE),
    boolean=_one_of("boolean", "tinyint(1)", "tinyint", encode=texts_by_way_of(pa.int8()), restore=to_flags),
    decimal=Storage.decimals(
        _DECIMALS, encode=decimal_texts, also="decimal with at least as many digits before and after the point"
    ),
    string=Storage.texts(
        "longtext",
        takes=_takes_text,
        in_quotes=True,
        also=f"varchar(n), tinytext, text, mediumtext, {_UTF8}",
        refused="more than n characters, or bytes than the column takes",
    ),
    binary=Storage(
        spark="binary",
        declared=always("longblob"),
        takes=_takes_bytes,
        encode=as_is,
        restore=to_values,
        in_quotes=True,
        also="varbinary(n), tinyblob, blob, mediumblob",
        refused="more bytes than the column takes",
    ),
    date=_one_of("date", "date", encode=texts_by_way_of(), restore=to_texts, refused=_NO_ZONE),
    timestamp=_one_of(
        "timestamp",
        "datetime(6)",
        "timestamp(6)",
        encode=moment_texts,
        restore=to_moments,
        refused=f"{_NO_ZONE}; in timestamp(6) outside 1970-01-01 00:00:01 to 2038-01-19 03:14:07.999999",
    ),
    timestamp_ntz=_one_of("timestamp_ntz", "datetime(6)", encode=moment_texts, restore=to_moments, refused=_NO_ZONE),
    time=_one_of("time", "time(6)", encode=texts_by_way_of(pa.time64("us")), restore=to_times, refused="parts of a microsecond"),
    interval=_one_of(
        "interval day to second", "bigint", encode=texts_by_way_of(pa.duration("us"), pa.int64()), restore=to_durations
    ),
    nested=Storage.json(
        "longtext",
        takes=_takes_json,
        in_quotes=True,
        also=f"tinytext, text, mediumtext, {_UTF8}; MariaDB's json",
        refused="times outside the years 0001 to 9999; more bytes than the column takes",
    ),
    void=Storage.nulls("longtext", takes=anything, also="any"),
)
storage_of = STORAGES.of
