"""What SQLite stores comes back as the same Arrow values, through a real database file in memory."""

import datetime as dt
import math
import random
import sqlite3
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.core.model import RowDigest
from penstock.core.row_hash import row_hashes
from penstock.sink.sqlite.storage import restored, storage_of, stored
from penstock.sink.table.target import NotStoredError

UTC = dt.timezone.utc
HOSTILE = [
    "",
    " ",
    "a'b\"c",
    "'; DROP TABLE t; --",
    "null\0byte",
    "007",
    "1e5",
    "NaN",
    "-0.0",
    "\U0001f600",
    "é",
    "é",
    "\n\t\\",
    "0" * 5000,
]
MOMENTS = [dt.datetime.fromisoformat(text) for text in ("0001-01-01", "9999-12-31T23:59:59.999999", "1969-12-31T23:59:59.999999")]

COLUMNS = {
    "bool": pa.array([True, False, None]),
    "int8": pa.array([-128, 127, None], pa.int8()),
    "int16": pa.array([-(2**15), 2**15 - 1, None], pa.int16()),
    "int32": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
    "int64": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "float": pa.array([1.5, 3.4028234663852886e38, 1.401298464324817e-45, math.nan, math.inf, -math.inf, None], pa.float32()),
    "double": pa.array([0.1, 5e-324, 1.7976931348623157e308, 2.0**53 + 2, math.nan, math.inf, -math.inf, 3.0, None]),
    "double without NaN": pa.array([0.1, None]),
    "decimal": pa.array([Decimal("12.30"), Decimal("-0.01"), Decimal("0.00"), None], pa.decimal128(12, 2)),
    "decimal 38": pa.array([Decimal("-99999999999999999999.123456789012345678"), Decimal("1E-18"), None], pa.decimal128(38, 18)),
    "decimal scale -2": pa.array([Decimal("1200"), Decimal("-100"), None], pa.decimal128(5, -2)),
    "string": pa.array([*HOSTILE, None]),
    "large string": pa.array([*HOSTILE, None], pa.large_string()),
    "binary": pa.array([b"", b"\0\xff", b"123", None]),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2013, 1, 31), None]),
    "timestamp": pa.array([*MOMENTS, None], pa.timestamp("us", "UTC")),
    "timestamp elsewhere": pa.array([*MOMENTS, None], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "Asia/Kolkata")),
    "timestamp_ntz": pa.array([*MOMENTS, None], pa.timestamp("us")),
    "time": pa.array([0, 1, 86_399_999_999_999, None], pa.int64()).cast(pa.time64("ns")),
    "duration": pa.array([-(2**62), 0, 2**62, None], pa.int64()).cast(pa.duration("us")),
    "null": pa.nulls(3),
    "no rows": pa.array([], pa.string()),
    "array": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    "array of doubles": pa.array([[0.1, math.nan, -math.inf, None], None], pa.list_(pa.float64())),
    "array of decimals": pa.array([[Decimal("0.10"), None]], pa.list_(pa.decimal128(9, 2))),
    "array of texts": pa.array([[*HOSTILE, None], []], pa.list_(pa.string())),
    "array of blobs": pa.array([[b"\0\xff", b"", None]], pa.list_(pa.binary())),
    "array of dates": pa.array([[dt.date(1, 1, 1), None]], pa.list_(pa.date32())),
    "array of timestamps": pa.array([[moment.replace(tzinfo=UTC) for moment in MOMENTS]], pa.list_(pa.timestamp("us", "UTC"))),
    "array of ntz": pa.array([MOMENTS], pa.list_(pa.timestamp("us"))),
    "array of durations": pa.array([[dt.timedelta(microseconds=-1), None]], pa.list_(pa.duration("us"))),
    "array of times": pa.array([[dt.time(23, 59, 59, 999999), None]], pa.list_(pa.time64("us"))),
    "struct": pa.array(
        [{"a b": True, "ü": {"x": [None, "é"]}}, {"a b": None, "ü": None}, None],
        pa.struct([("a b", pa.bool_()), ("ü", pa.struct([("x", pa.list_(pa.string()))]))]),
    ),
    "map": pa.array([[("b", 1), ("a", None)], [], None], pa.map_(pa.string(), pa.int64())),
    "map with one key twice": pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
    "map with number keys": pa.array([[(2, ["x"]), (1, None)], []], pa.map_(pa.int32(), pa.list_(pa.string()))),
}


def through_sqlite(column):
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE t (i INTEGER PRIMARY KEY, c {storage_of(column.type).declared(column.type)})")
    database.executemany("INSERT INTO t (c) VALUES (?)", ((value,) for value in stored(column)))
    found = [row[0] for row in database.execute("SELECT c FROM t ORDER BY i")]
    database.close()
    return restored(found, column.type)


def text(column):
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return [repr(value) for value in column.to_pylist()]


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_values_come_back_as_they_were(column):
    back = through_sqlite(column)
    assert back.type == column.type
    assert text(back) == text(column)
    assert row_hashes(pa.record_batch({"c": back}), RowDigest.XXHASH64_NULLS).equals(
        row_hashes(pa.record_batch({"c": column}), RowDigest.XXHASH64_NULLS)
    )


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_a_slice_is_stored_like_the_whole(column):
    assert stored(column.slice(1, 1)) == stored(column)[1:2]


def test_negative_zero_comes_back_as_zero_with_the_same_hash():
    column = pa.array([-0.0])
    back = through_sqlite(column)
    assert back.to_pylist() == [0.0]
    assert row_hashes(pa.record_batch({"c": back}), RowDigest.XXHASH64_NULLS).equals(
        row_hashes(pa.record_batch({"c": column}), RowDigest.XXHASH64_NULLS)
    )


def test_random_doubles_and_floats_come_back():
    seed = random.randrange(2**32)
    print("seed", seed)
    numbers = random.Random(seed)
    values = [math.ldexp(numbers.random() - 0.5, numbers.randrange(-1070, 1020)) + 0.0 for _ in range(2000)]
    narrow = pc.add(pa.array(values).cast(pa.float32(), safe=False), pa.scalar(0, pa.float32()))
    for column in (pa.array(values), narrow):
        assert text(through_sqlite(column)) == text(column)


def test_texts_are_what_sqlite_understands():
    database = sqlite3.connect(":memory:")
    moment = stored(pa.array([dt.datetime(2013, 1, 31, 5, 15, 0, 250000, UTC)], pa.timestamp("us", "UTC")))[0]
    assert moment == "2013-01-31 05:15:00.250000Z"
    assert database.execute("SELECT strftime('%s', ?), date(?, '+1 day')", (moment, moment)).fetchone() == (
        "1359609300",
        "2013-02-01",
    )
    nested = stored(COLUMNS["struct"])[0]
    assert database.execute("SELECT json_extract(?, '$.ü.x[1]')", (nested,)).fetchone() == ("é",)
    database.close()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", pa.int32()),
        (1.5, pa.int32()),
        (2**31, pa.int32()),
        (2, pa.bool_()),
        ("nan", pa.float64()),
        (0.1, pa.float32()),
        (b"text", pa.string()),
        ("text", pa.binary()),
        (1.5, pa.decimal128(5, 2)),
        ("1.234", pa.decimal128(5, 2)),
        ("one", pa.decimal128(5, 2)),
        ("2013-01-32", pa.date32()),
        ("yesterday", pa.timestamp("us", "UTC")),
        ("2013-01-31 05:15:00.000000Z", pa.timestamp("us")),
        ("25:00:00", pa.time64("ns")),
        ("{", pa.list_(pa.int32())),
        ('{"b": 1}', pa.struct([("a", pa.int32())])),
        ("[1.5]", pa.list_(pa.int32())),
    ],
)
def test_what_penstock_cannot_have_written_is_told(value, kind):
    with pytest.raises(NotStoredError):
        restored([value], kind)
