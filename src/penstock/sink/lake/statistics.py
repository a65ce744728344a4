"""Statistics of a file's columns for the log of a table, made from the file's footer: readers skip files by them.

A wrong bound hides rows. So bounds are left out where any reader might take them in another way than they are meant: of floating
point numbers (NaN is within no bounds), of long decimals (which readers parse as floating point), of bytes and booleans, and the
upper bound of long texts.
"""

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.model import Json
from penstock.sink.lake.write_mode import APPENDING, WriteMode
from penstock.sink.parquet.encoding import leaf_columns

STATISTICS: Final = "statistics"
"""The key in `Staged.ref` whose value is a JSON text, as the log of a Delta table has it."""

COLUMNS: Final = "columns"
"""The key in `Staged.ref` whose value is the `fingerprint` of the numbers with which the columns were written."""

_COLUMNS: Final = 32
"""As many columns as Delta itself indexes by default: statistics travel in the decision."""
_CHARACTERS: Final = 32
_EXACT_DIGITS: Final = 15
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def footer_notes(footer: "pq.FileMetaData", schema: "pa.Schema") -> Mapping[str, Json]:
    """Return the entry of `Staged.ref` with the statistics of a file."""
    return {STATISTICS: json.dumps(_statistics(footer, schema), ensure_ascii=False, separators=(",", ":"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNotes:
    """Makes the entries of `Staged.ref` with a file's statistics and with the write mode of its rows.

    `columns`: the `fingerprint` of the numbers that its columns have.
    """

    mode: WriteMode = APPENDING
    columns: str | None = None

    def __call__(self, footer: "pq.FileMetaData", schema: "pa.Schema") -> Mapping[str, Json]:
        numbers: Mapping[str, Json] = {} if self.columns is None else {COLUMNS: self.columns}
        return {**footer_notes(footer, schema), **self.mode.noted(), **numbers}


def fingerprint(ids: Mapping[str, int] | None, columns: Sequence[str]) -> str | None:
    """Return a short text that changes if one of `columns` gets another number; None where columns have no numbers.

    `ids` are by path; those of columns that are not in `columns` do not count.
    """
    if ids is None:
        return None
    counted = sorted((path, number) for path, number in ids.items() if any(f"{path}.".startswith(f"{name}.") for name in columns))
    return sha256(json.dumps(counted).encode()).hexdigest()[:16]


def _statistics(footer: "pq.FileMetaData", schema: "pa.Schema") -> Mapping[str, Any]:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    leaves = [leaf for field in schema for leaf in leaf_columns(field.name, pa.array([], field.type))]
    for index, (name, _) in enumerate(leaves[:_COLUMNS]):
        found = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if name not in schema.names or pa.types.is_nested(schema.field(name).type) or any(each is None for each in found):
            continue  # `None in found` would call the equality of pyarrow, which crashes on None
        if all(each.has_null_count for each in found):
            nulls[name] = sum(each.null_count for each in found)
        filled = [each for each in found if not (each.has_null_count and each.num_values == 0)]
        if filled and all(each.has_min_max for each in filled):
            _note(least, name, partial(_least, filled))
            _note(greatest, name, partial(_greatest, filled))
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _note(bounds: dict[str, Any], column: str, bound_of: Callable[[], Any]) -> None:
    """Note a column's bound over all row groups, unless it has none."""
    try:
        bound = bound_of()
    except (ValueError, OverflowError):  # a time beyond what Python's calendar holds
        return
    if bound is not None:
        bounds[column] = bound


def _least(filled: list[Any]) -> Any:
    return _lower(min(each.min for each in filled))


def _greatest(filled: list[Any]) -> Any:
    return _upper(max(each.max for each in filled))


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_CHARACTERS]
    return _moment(value, up=False) if isinstance(value, dt.datetime) else _plain(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _CHARACTERS else None
    return _moment(value, up=True) if isinstance(value, dt.datetime) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal):
        return float(value) if len(value.as_tuple().digits) <= _EXACT_DIGITS else None
    return value.isoformat() if isinstance(value, dt.date) else None


def _moment(value: dt.datetime, *, up: bool) -> str:
    """Return a time in whole milliseconds, as all readers parse it, rounded away from the values."""
    rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
    if up and rounded < value:
        rounded += _MILLISECOND
    text = rounded.replace(tzinfo=None).isoformat(sep="T" if value.tzinfo else " ", timespec="milliseconds")
    return f"{text}Z" if value.tzinfo else text
