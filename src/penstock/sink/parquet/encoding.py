"""Parquet encodings: what a user sets, what a file is written with, and which encoding fits which type.

A path names a column as Parquet does: `id`, `address.city`, `tags.list.element`, `attributes.key_value.value`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from penstock.errors import Usage

AUTO, DICTIONARY, PLAIN = "auto", "dictionary", "plain"
DELTA_BINARY_PACKED, BYTE_STREAM_SPLIT = "delta_binary_packed", "byte_stream_split"
DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY = "delta_byte_array", "delta_length_byte_array"

FOR_ALL_COLUMNS: Final = (AUTO, DICTIONARY, PLAIN)
DICTIONARY_PAGESIZE_LIMIT: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingSettings:
    """What the user asked for: `default` for all columns except those in `columns`, which maps paths to encodings."""

    default: str = AUTO
    columns: Mapping[str, str] = field(default_factory=dict)
    dictionary_pagesize_limit_bytes: int = DICTIONARY_PAGESIZE_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """The encodings of an attempt's files: `default` for all columns, or an encoding for every path in `columns`."""

    default: str = DICTIONARY
    columns: Mapping[str, str] = field(default_factory=dict)
    dictionary_pagesize_limit_bytes: int = DICTIONARY_PAGESIZE_LIMIT

    def writer_options(self) -> Mapping[str, object]:
        """Return the arguments for `pyarrow.parquet.ParquetWriter`."""
        others = {path: name.upper() for path, name in self.columns.items() if name not in {DICTIONARY, PLAIN}}
        listed = [path for path, name in self.columns.items() if name == DICTIONARY]
        return {
            "use_dictionary": listed if self.columns else self.default == DICTIONARY,
            "column_encoding": others or None,
            "dictionary_pagesize_limit": self.dictionary_pagesize_limit_bytes,
        }


def leaf_columns(path: str, column: "pa.Array") -> "Iterator[tuple[str, pa.Array]]":
    """Yield the leaf columns that Parquet makes of `column`, with their paths. Of a list, it yields the elements of all rows."""
    kind = column.type
    if pa.types.is_struct(kind):
        for inner, values in zip(kind, column.flatten(), strict=True):
            yield from leaf_columns(f"{path}.{inner.name}", values)
    elif pa.types.is_map(kind):
        yield from leaf_columns(f"{path}.key_value.key", column.keys)
        yield from leaf_columns(f"{path}.key_value.value", column.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from leaf_columns(f"{path}.list.element", column.flatten())
    else:
        yield path, column


def fitting(kind: "pa.DataType") -> tuple[str, ...]:
    """Return the encodings that a leaf column of this type can have, so that DuckDB and Spark's vectorised reader read it.

    The vectorised reader of Spark 4.0 does not read BYTE_STREAM_SPLIT.
    """
    if pa.types.is_boolean(kind):
        return (PLAIN,)
    if is_whole_number(kind):
        return (DICTIONARY, PLAIN, DELTA_BINARY_PACKED)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return (DICTIONARY, PLAIN, BYTE_STREAM_SPLIT)
    if is_text(kind):
        return (DICTIONARY, PLAIN, DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY)
    return (DICTIONARY, PLAIN)


def is_whole_number(kind: "pa.DataType") -> bool:
    """Return whether Parquet stores the type as INT32 or INT64."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or is_time(kind))


def is_time(kind: "pa.DataType") -> bool:
    """Return whether the type is a timestamp, a time or a duration."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind))


def is_text(kind: "pa.DataType") -> bool:
    """Return whether the type is text or bytes of any length."""
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_string or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def require_encodable(settings: EncodingSettings, stored: "pa.Schema") -> None:
    """Raise Usage for a path that is not in the schema `stored`, and for an encoding that does not fit the column's type."""
    kinds: dict[str, list[pa.DataType]] = {}
    for each in stored:
        for path, values in leaf_columns(each.name, pa.array([], each.type)):
            kinds.setdefault(path, []).append(values.type)
    for path, name in settings.columns.items():
        if path not in kinds:
            raise _unknown_path(path, list(kinds))
        for kind in kinds[path]:
            if name not in fitting(kind):
                raise Usage(
                    f"column_encoding.{path} is {name}, but the column has the type {kind}.",
                    remedy=f"Use one of {', '.join(fitting(kind))}, or leave the column out.",
                )


def _unknown_path(path: str, known: list[str]) -> Usage:
    below = [each for each in known if each.startswith(f"{path}.")]
    shown = ", ".join((below or known)[:20]) + (", …" if len(below or known) > 20 else "")
    return Usage(
        f"column_encoding names {path!r}, which is no column of the files.",
        remedy=f"Name {'what it consists of' if below else 'a column that is no partition'}: {shown}.",
    )
