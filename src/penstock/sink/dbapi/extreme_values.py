"""Values with which a table is tried: ordinary ones, and those that some databases do not keep."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.sink.dbapi.row_validator import INFINITY, NAN, NUL

_NUMBERS = ("007", "1.50", "1e3")
"""Texts of numbers. A column that SQLite takes for a numeric one, such as STRING, turns them into 7, 1.5 and 1000."""
_TEXTS = ("a", "", " ", "b ", "'", '"', "`", "\\", "%s", "?", ":p1", "$1", "\t", "\r\n", "é", "e\u0301", "\U0001f600", *_NUMBERS)
ROWS = len(_TEXTS)
"""How many rows hold all of them; no type has more values of its own."""
_MORE = range(1, 2 * ROWS)
"""Further values of types that a key may have: in so many rows no key repeats, even one that Penstock does not know of.

They are enough where a table has some of them already.
"""
_DAYS = (dt.date(2000, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31))
_MOMENTS = (
    dt.datetime(2013, 1, 31, 5, 15),  # noqa: DTZ001 - Arrow gives it the column's zone
    dt.datetime(1, 1, 1),  # noqa: DTZ001
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
)
SPECIALS: Final[Mapping[str, Any]] = {NAN: float("nan"), INFINITY: float("-inf"), NUL: "a\0b"}


def special_of(kind: "pa.DataType") -> Sequence[str]:
    """Return which of NAN, INFINITY and NUL a value of the type can be or contain."""
    return (NAN, INFINITY) if pa.types.is_floating(kind) else (NUL,) if pa.types.is_string(kind) else ()


def widest_of(kind: "pa.DataType") -> Any:
    """Return the character or byte that takes the most space, None for a type whose values have no length."""
    return "\U0001f600" if pa.types.is_string(kind) else b"\xff" if pa.types.is_binary(kind) else None


def edges_of(kind: "pa.DataType") -> Sequence[Any]:
    """Return ordinary and extreme values, the most ordinary first, then further ones."""
    return next(edges(kind) for is_kind, edges in _EDGES if is_kind(kind))


def _integers(kind: Any) -> Sequence[Any]:
    most = (1 << (kind.bit_width - 1)) - 1
    return (7, most, -most - 1, 0, *(most - at for at in _MORE))


def _decimals(kind: Any) -> Sequence[Any]:
    most = 10**kind.precision - 1
    digits = (7, most, -most, *(most - at for at in _MORE if 7 != most - at > 0))
    return [Decimal((int(number < 0), [*map(int, str(abs(number)))], -kind.scale)) for number in digits]


def _moments(kind: Any) -> Sequence[Any]:
    zone = dt.timezone.utc if kind.tz else None
    moments = (*_MOMENTS, *(_MOMENTS[-1] - dt.timedelta(microseconds=at) for at in _MORE))
    return [moment.replace(tzinfo=zone) for moment in moments]


_EDGES: Final[Sequence[tuple[Callable[[Any], bool], Callable[[Any], Sequence[Any]]]]] = (
    (pa.types.is_boolean, lambda _: (True, False)),
    (pa.types.is_integer, _integers),
    (pa.types.is_float32, lambda _: (0.5, 3.4028234663852886e38, 1.401298464324817e-45)),
    (pa.types.is_float64, lambda _: (0.5, 1.7976931348623157e308, 5e-324, 0.1)),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_string, lambda _: (*_TEXTS, *(str(9 + at) for at in _MORE))),
    (pa.types.is_binary, lambda _: (b"plain", b"", bytes(range(256)))),
    (pa.types.is_date, lambda _: (*_DAYS, *(_DAYS[-1] - dt.timedelta(days=at) for at in _MORE))),
    (pa.types.is_timestamp, _moments),
)
