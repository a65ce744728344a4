"""Storage of Arrow values in SQLite, and reading exactly the same values back.

| Arrow (Spark) | stored as | declared |
|---|---|---|
| integers, duration (microseconds) | integer | INTEGER |
| bool | 0 or 1 | BOOLEAN |
| float, double | real; NaN as the text `NaN`, because SQLite turns a NaN into NULL | REAL |
| decimal | text with all digits of the scale | TEXT |
| string | text | TEXT |
| binary | blob | BLOB |
| date | text `2013-01-31` | TEXT |
| timestamp | text in UTC `2013-01-31 05:15:00.000000Z` | TEXT |
| timestamp without a zone | text `2013-01-31 05:15:00.000000` | TEXT |
| time | text `05:15:00.000000000` | TEXT |
| struct, array, map | JSON text (see `sink.table.nested`) | TEXT |

SQLite's own functions understand these dates and times, and they sort as text. A negative zero comes back as zero, the only one
that SQLite's REAL columns have; Spark treats the two as equal, and they have the same hash.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.nested import to_json
from penstock.sink.table.numbers import to_reals
from penstock.sink.table.storage import Restore, Storages, Values, to_flags, to_nested, to_texts, to_values
from penstock.sink.table.target import NotStoredError

NAN = "NaN"
MAX_INTEGER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Storage:
    """How one group of Arrow types is stored: the declared type, the affinities that keep values, and both conversions."""

    declared: str
    affinities: frozenset[str]
    kinds: frozenset[type]
    store: Callable[["pa.Array"], Values]
    restore: Restore


def stored(column: "pa.Array") -> Values:
    """Return the column's values as `sqlite3` takes them."""
    return storage_of(column.type).store(column)


def restored(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Return the Arrow column from which `values` (as `sqlite3` gives them) were stored. Raises NotStoredError."""
    storage, found = storage_of(kind), list(values)
    foreign = set(map(type, found)) - storage.kinds - {NoneType}
    if foreign:
        names = ", ".join(sorted(kind.__name__ for kind in foreign))
        raise NotStoredError(f"expected {storage.declared} for {kind}, found a value of Python's {names}")
    return _STORAGES.restored(found, kind)


# --- storing


def _as_is(column: "pa.Array") -> Values:
    values: Values = column.to_pylist()
    return values


def _integer(column: "pa.Array") -> Values:
    return _as_is(column.cast(pa.int64()))


def _flag(column: "pa.Array") -> Values:
    return _as_is(column.cast(pa.int8()))


def _real(column: "pa.Array") -> Values:
    values = _as_is(column.cast(pa.float64()))
    if pc.any(pc.is_nan(column)).as_py():
        return [NAN if value is not None and value != value else value for value in values]  # noqa: PLR0124 - NaN
    return values


def _text(column: "pa.Array") -> Values:
    return _as_is(column.cast(pa.string()))


def _decimal(column: "pa.Array") -> Values:
    texts = column.cast(pa.string())
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return _as_is(texts)
    return [None if value is None else format(value, "f") for value in _as_is(column)]


def _moment(column: "pa.Array") -> Values:
    texts = column.cast(pa.timestamp("us", column.type.tz)).view(pa.timestamp("us")).cast(pa.string())
    return _as_is(pc.binary_join_element_wise(texts, "Z", "") if column.type.tz else texts)


def _nothing(column: "pa.Array") -> Values:
    return [None] * len(column)


# --- restoring


def _to_integer(values: Values, kind: "pa.DataType") -> "pa.Array":
    return pa.array(values, pa.int64()).cast(kind)


def _to_real(values: Values, kind: "pa.DataType") -> "pa.Array":
    plain = {float, NoneType}.issuperset(map(type, values))
    return to_reals(values if plain else [_number(value) for value in values], kind)


def _number(value: Any) -> Any:
    if isinstance(value, str) and value != NAN:
        raise NotStoredError(f"expected a number or {NAN}, found the text {value!r}")
    if isinstance(value, int) and int(float(value)) != value:  # a NUMERIC column stores whole numbers as integers
        raise NotStoredError(f"expected a number that a double can hold, found {value}")
    return float("nan") if value == NAN else None if value is None else float(value)


def _to_decimal(values: Values, kind: "pa.DataType") -> "pa.Array":
    return pa.array([None if value is None else Decimal(value) for value in values], kind)


def _to_moment(values: Values, kind: "pa.DataType") -> "pa.Array":
    return pa.array(values, pa.string()).cast(pa.timestamp("us", "UTC" if kind.tz else None)).cast(kind)


def _to_time(values: Values, kind: "pa.DataType") -> "pa.Array":
    days = pc.binary_join_element_wise("1970-01-01", pa.array(values, pa.string()), " ")
    return days.cast(pa.timestamp("ns")).cast(pa.time64("ns")).cast(kind)


_KEEP_NUMBERS = frozenset({"INTEGER", "NUMERIC", "BLOB"})
_KEEP_TEXT = frozenset({"TEXT", "BLOB"})
_KEEP_TIMES = frozenset({"TEXT", "BLOB", "NUMERIC"})
_KEEP_ANYTHING = frozenset({"INTEGER", "NUMERIC", "BLOB", "TEXT", "REAL"})

_types = pa.types

_STORAGES = Storages(
    "SQLite",
    (_types.is_integer, Storage("INTEGER", _KEEP_NUMBERS, frozenset({int}), _integer, _to_integer)),
    (_types.is_duration, Storage("INTEGER", _KEEP_NUMBERS, frozenset({int}), _integer, _to_integer)),
    (_types.is_boolean, Storage("BOOLEAN", _KEEP_NUMBERS, frozenset({int}), _flag, to_flags)),
    (_types.is_floating, Storage("REAL", frozenset({"REAL", "NUMERIC", "BLOB"}), frozenset({int, float, str}), _real, _to_real)),
    (_types.is_decimal, Storage("TEXT", _KEEP_TEXT, frozenset({str}), _decimal, _to_decimal)),
    (_types.is_string, Storage("TEXT", _KEEP_TEXT, frozenset({str}), _text, to_texts)),
    (_types.is_large_string, Storage("TEXT", _KEEP_TEXT, frozenset({str}), _text, to_texts)),
    (_types.is_binary, Storage("BLOB", _KEEP_ANYTHING, frozenset({bytes}), _as_is, to_values)),
    (_types.is_large_binary, Storage("BLOB", _KEEP_ANYTHING, frozenset({bytes}), _as_is, to_values)),
    (_types.is_date, Storage("TEXT", _KEEP_TIMES, frozenset({str}), _text, to_texts)),
    (_types.is_timestamp, Storage("TEXT", _KEEP_TIMES, frozenset({str}), _moment, _to_moment)),
    (_types.is_time, Storage("TEXT", _KEEP_TIMES, frozenset({str}), _text, _to_time)),
    (_types.is_nested, Storage("TEXT", _KEEP_TIMES, frozenset({str}), to_json, to_nested)),
    (_types.is_null, Storage("TEXT", _KEEP_ANYTHING, frozenset(), _nothing, to_values)),
)
storage_of = _STORAGES.of
