"""Storage of Arrow values in SQLite, reading exactly the same values back, and the check in the tasks for those it cannot hold.

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

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.row_validator import Limits, TableRowValidator
from penstock.sink.table.storage import (
    Encode,
    Restore,
    Storages,
    Values,
    as_is,
    json_texts,
    nothing,
    to_durations,
    to_flags,
    to_integers,
    to_nested,
    to_reals,
    to_texts,
    to_values,
)
from penstock.sink.table.target import NotStoredError

NAN = "NaN"
_UNSIGNED = Limits(low=0, high=(1 << 63) - 1, description="64 bits with sign")


@dataclass(frozen=True, slots=True)
class Storage:
    """How one group of Arrow types is stored: the type of a created column, the affinities that keep values, the conversions.

    `kinds`: the types of the values that `sqlite3` returns.
    """

    name: str
    affinities: frozenset[str]
    kinds: frozenset[type]
    encode: Encode
    restore: Restore
    also: str = ""

    def declared(self, _kind: "pa.DataType") -> str:
        return self.name

    def takes(self, declared: str, _kind: "pa.DataType") -> bool:
        return affinity(declared) in self.affinities


def affinity(declared: str) -> str:
    """Return the affinity of a column so declared (sqlite.org, "Datatypes In SQLite", section 3.1)."""
    name = declared.upper()
    for found, parts in (
        ("INTEGER", ("INT",)),
        ("TEXT", ("CHAR", "CLOB", "TEXT")),
        ("BLOB", ("BLOB",)),
        ("REAL", ("REAL", "FLOA", "DOUB")),
    ):
        if any(part in name for part in parts):
            return found
    return "NUMERIC" if name else "BLOB"


def stored(column: "pa.Array") -> Values:
    """Return the column's values as `sqlite3` takes them."""
    values: Values = storage_of(column.type).encode(column).to_pylist()
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return [NAN if value is not None and math.isnan(value) else value for value in values]
    return values


def restored(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Return the Arrow column from which `values` (as `sqlite3` gives them) were stored. Raises NotStoredError."""
    storage, found = storage_of(kind), list(values)
    foreign = set(map(type, found)) - storage.kinds - {NoneType}
    if foreign:
        names = ", ".join(sorted(kind.__name__ for kind in foreign))
        raise NotStoredError(f"expected {storage.name} for {kind}, found a value of Python's {names}")
    return _STORAGES.restored(found, kind)


# --- storing


def _cast_to(kind: "pa.DataType") -> Encode:
    return lambda column: column.cast(kind)


def _decimal(column: "pa.Array") -> "pa.Array":
    texts = column.cast(pa.string())
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array([None if value is None else format(value, "f") for value in column.to_pylist()], pa.string())


def _moment(column: "pa.Array") -> "pa.Array":
    texts = column.cast(pa.timestamp("us", column.type.tz)).view(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise(texts, "Z", "") if column.type.tz else texts


# --- restoring


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


_INTEGER, _TEXT = frozenset({int}), frozenset({str})
_KEEP_NUMBERS = frozenset({"INTEGER", "NUMERIC", "BLOB"})
_KEEP_REALS = frozenset({"REAL", "NUMERIC", "BLOB"})
_KEEP_TEXT = frozenset({"TEXT", "BLOB"})
_KEEP_TIMES = frozenset({"TEXT", "BLOB", "NUMERIC"})
_KEEP_ANYTHING = frozenset({"INTEGER", "NUMERIC", "BLOB", "TEXT", "REAL"})

_integers = Storage("INTEGER", _KEEP_NUMBERS, _INTEGER, _cast_to(pa.int64()), to_integers)
_reals = Storage("REAL", _KEEP_REALS, frozenset({int, float, str}), _cast_to(pa.float64()), _to_real)
_moments = Storage("TEXT", _KEEP_TIMES, _TEXT, _moment, _to_moment)

_STORAGES = Storages.of_types(
    "SQLite",
    short=_integers,
    integer=_integers,
    long=_integers,
    interval=replace(_integers, restore=to_durations),
    boolean=Storage("BOOLEAN", _KEEP_NUMBERS, _INTEGER, _cast_to(pa.int8()), to_flags),
    float=_reals,
    double=_reals,
    decimal=Storage("TEXT", _KEEP_TEXT, _TEXT, _decimal, _to_decimal),
    string=Storage("TEXT", _KEEP_TEXT, _TEXT, as_is, to_texts),
    binary=Storage("BLOB", _KEEP_ANYTHING, frozenset({bytes}), as_is, to_values),
    date=Storage("TEXT", _KEEP_TIMES, _TEXT, _cast_to(pa.string()), to_texts),
    timestamp=_moments,
    timestamp_ntz=_moments,
    time=Storage("TEXT", _KEEP_TIMES, _TEXT, _cast_to(pa.string()), _to_time),
    nested=Storage("TEXT", _KEEP_TIMES, _TEXT, json_texts, to_nested),
    void=Storage("TEXT", _KEEP_ANYTHING, frozenset(), nothing, to_values),
)
storage_of = _STORAGES.of


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """A `TableRowValidator` for SQLite. Column names are in lower case. `no_nan`: the columns that cannot store NaN."""

    no_nan: frozenset[str]

    def folded(self, name: str) -> str:
        return name.lower()

    def limits(self, kind: "pa.DataType") -> Limits | None:
        return _UNSIGNED if pa.types.is_uint64(kind) else super(RowValidator, self).limits(kind)

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for NaN in a STRICT table, and for values that have no JSON."""
        if pa.types.is_floating(column.type) and name.lower() in self.no_nan and pc.any(pc.is_nan(column)).as_py():
            raise self.refusal(f"NaN in column {name!r} of a STRICT table", "Turn NaN into NULL, or declare the column ANY.")
        if pa.types.is_nested(column.type):
            self.require_json(name, partial(stored, column))
