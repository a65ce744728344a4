"""Rows in which every mistake shows (unique ids, hostile texts, extreme numbers, nulls), and their comparison."""

import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.spark.schema import arrow_schema

Row: TypeAlias = Mapping[str, Any]
Content: TypeAlias = "Counter[tuple[str, ...]]"

HOSTILE = (
    "", " ", "plain", "a'b\"c`d", "'; DROP TABLE rows; --", "a/b/../c", "..", "x=y", "%2F", "100%", "\\", "\t\r\n",
    "null", "NULL", "__HIVE_DEFAULT_PARTITION__", "nul\0byte", "007", "1e5", "NaN", "é", "e\u0301", "\U0001f600",
    "\u202eabc", "\ufeffx", "z" * 200,
)  # fmt: skip
"""Texts that break quoting, paths, number guessing or Unicode handling somewhere."""

_DOUBLES = (0.1, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 2.0**53 + 2, None)
_LONGS = (0, -1, 2**63 - 1, -(2**63), None)
_PRICES = (Decimal("0.01"), Decimal("-9999999999.99"), Decimal("0.00"), None)
_DAYS = (dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), None)
_MOMENTS = (
    dt.datetime(2013, 1, 31, 5, 15, tzinfo=dt.timezone.utc),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone.utc),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone.utc),
    None,
)

_TYPES = {
    "id": "long",
    "place": "string",
    "name": "string",
    "number": "long",
    "amount": "double",
    "price": "decimal(12,2)",
    "day": "date",
    "seen": "timestamp",
    "flag": "boolean",
    "raw": "binary",
}

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": name != "id", "metadata": {}} for name, kind in _TYPES.items()],
    }
)
"""Spark's JSON of the rows."""


def make_rows(ids: Iterable[int]) -> list[Row]:
    """Return one row for each id, always the same for the same id; neighbours differ in every column."""
    return [
        {
            "id": number,
            "place": HOSTILE[number % 7 + 2],
            "name": HOSTILE[number % len(HOSTILE)] if number % 11 else None,
            "number": _LONGS[number % len(_LONGS)],
            "amount": _DOUBLES[number % len(_DOUBLES)],
            "price": _PRICES[number % len(_PRICES)],
            "day": _DAYS[number % len(_DAYS)],
            "seen": _MOMENTS[number % len(_MOMENTS)],
            "flag": (True, False, None)[number % 3],
            "raw": bytes([number % 256, 0, 255]) if number % 5 else None,
        }
        for number in ids
    ]


SWAPPED = 1015
"""Id of a row with `number` 0 and `price` NULL, and NULL in the column between them."""


def swapped(row: Row) -> Row:
    """Return the row of id SWAPPED with its `number` moved into `price`: hashes that skip NULLs stay the same."""
    assert (row["number"], row["amount"], row["price"]) == (0, None, None)
    return {**row, "number": None, "price": Decimal("0.00")}


def as_batch(rows: Sequence[Row], schema: str = SCHEMA) -> "pa.RecordBatch":
    """Return the rows as Spark hands them to a Python worker."""
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=arrow_schema(schema))


def content(rows: Iterable[Row]) -> Content:
    """Return the multiset of `rows`: columns by name, values by type and value, so that 1, 1.0, True and "1" all differ."""
    return Counter(tuple(f"{name}={_plain(row[name])}" for name in sorted(row)) for row in rows)


def _plain(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return f"instant {value.astimezone(dt.timezone.utc).isoformat()}"
    return repr(value)


def require_equal(found: Iterable[Row], expected: Iterable[Row]) -> None:
    """Raise AssertionError unless both hold the same rows. It shows up to three missing and three surplus rows."""
    shown, wanted = content(found), content(expected)
    lost, surplus = list((wanted - shown).elements()), list((shown - wanted).elements())
    if lost or surplus:
        raise AssertionError(f"{len(lost)} rows lost: {lost[:3]}; {len(surplus)} rows too many: {surplus[:3]}")
