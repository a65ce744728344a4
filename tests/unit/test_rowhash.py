"""Row hashes against values that Spark 4.3 printed for `SELECT xxhash64(…)`, and against themselves in other layouts."""

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.rowhash import CHUNK_ROWS, digest, row_hashes

UTC = dt.timezone.utc
EARLY = dt.datetime.fromisoformat("1900-01-01")
STRUCT = pa.struct([("x", pa.int32()), ("y", pa.null()), ("z", pa.list_(pa.int64()))])
ENTRIES = pa.map_(pa.string(), pa.int32())

SPARK: tuple[tuple[Any, pa.DataType, int], ...] = (
    (0, pa.int8(), 3614696996920510707),
    (-1, pa.int8(), 2017008487422258757),
    (-300, pa.int16(), 2895908635257747121),
    (0, pa.int32(), 3614696996920510707),
    (-(2**31), pa.int32(), 2073849959933241805),
    (2**63 - 1, pa.int64(), 15200148018071253766),
    (-1, pa.int64(), 3858142552250413010),
    (True, pa.bool_(), 11748118483920312617),
    (False, pa.bool_(), 3614696996920510707),
    (-0.0, pa.float32(), 3614696996920510707),
    (0.0, pa.float32(), 3614696996920510707),
    (float("nan"), pa.float32(), 2692338816207849720),
    (1.5, pa.float32(), 6163473420726370430),
    (-0.0, pa.float64(), 13194218611613725804),
    (0.0, pa.float64(), 13194218611613725804),
    (float("nan"), pa.float64(), 15318800012184600370),
    (float("-inf"), pa.float64(), 5326262080505358431),
    (1e-300, pa.float64(), 5626877377845027661),
    ("", pa.string(), 11002672306508523268),
    ("a", pa.string(), 9864288744972464332),
    ("abc", pa.large_string(), 1423657621850124518),
    ("abcd", pa.string(), 11635998197418446335),
    ("abcdefgh", pa.string(), 2470326616177429180),
    ("abcdefghijk", pa.string(), 11570242727681586427),
    ("žluťoučký kůň", pa.string(), 16788102478323876498),
    ("0123456789abcdef" * 2, pa.string(), 7380026953736478117),
    ("x" * 77 + "yz", pa.string(), 10784347267076677898),
    (b"\x00\xff\x10", pa.binary(), 5415089035989094387),
    (b"\x00\xff\x10", pa.binary(3), 5415089035989094387),
    (dt.date(1969, 12, 31), pa.date32(), 2017008487422258757),
    (dt.datetime(2013, 1, 31, 5, 15, 0, 1, UTC), pa.timestamp("us", "UTC"), 3803428170949628685),
    (EARLY, pa.timestamp("us"), 155858819934112402),
    (EARLY, pa.timestamp("ms"), 155858819934112402),
    (Decimal("-12345.67"), pa.decimal128(10, 2), 13520767571377650044),
    (Decimal("9" * 38), pa.decimal128(38, 0), 18399553344533558437),
    (Decimal(-1), pa.decimal128(20, 0), 14440711548252107680),
    (Decimal(128), pa.decimal128(20, 0), 6715097930120473301),
    (Decimal(-128), pa.decimal128(20, 0), 10548332412077393493),
    (Decimal(0), pa.decimal128(38, 18), 9486749600008296231),
    (None, pa.int32(), 42),
    ([1, None, 3], pa.list_(pa.int32()), 15063469706222883685),
    ([1, None, 3], pa.list_(pa.int32(), 3), 15063469706222883685),
    ([], pa.list_(pa.int32()), 42),
    (["a", "", None], pa.large_list(pa.string()), 17587893719358614773),
    ({"x": 1, "y": None, "z": [2]}, STRUCT, 2360248972619621018),
    (dt.timedelta(days=1, hours=2, minutes=3, seconds=4.5), pa.duration("us"), 12578822420857769268),
    (pa.MonthDayNano([14, -3, 1_250_000_000]), pa.month_day_nano_interval(), 5042728169119971018),
    ([("k", 1), ("l", None)], ENTRIES, 7417643384264468026),
    (None, pa.null(), 42),
)


def hashes_of(*columns: pa.Array) -> list[int]:
    names = [f"c{index}" for index in range(len(columns))]
    return row_hashes(pa.RecordBatch.from_arrays(list(columns), names=names)).to_pylist()


@pytest.mark.parametrize(("value", "kind", "expected"), SPARK, ids=lambda value: str(value)[:20])
def test_is_what_spark_says(value: Any, kind: pa.DataType, expected: int) -> None:
    assert hashes_of(pa.array([value], kind)) == [expected]
    assert hashes_of(pa.array([None, value, None, value], kind).slice(1, 3)) == [expected, 42, expected]


def test_folds_columns_from_left_to_right() -> None:
    columns = [
        pa.array([1], pa.int32()),
        pa.array(["a"]),
        pa.array([None], pa.int64()),
        pa.array([2.5]),
        pa.array([[3]], pa.list_(pa.int32())),
    ]
    assert hashes_of(*columns) == [13296080472999943402]
    assert hashes_of(*reversed(columns)) != [13296080472999943402]


def test_a_dictionary_counts_as_its_values() -> None:
    texts = pa.array(["a", None, "abc", "a"])
    assert hashes_of(texts.dictionary_encode()) == hashes_of(texts)


def test_texts_of_all_lengths_hash_alike_alone_and_together() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    texts = [bytes(rng.randrange(256) for _ in range(length)) for length in [*range(100), 1000, 33, 0, 8, 31, 32, 64]]
    rng.shuffle(texts)
    together = hashes_of(pa.array(texts))
    assert together == [hashes_of(pa.array([text]))[0] for text in texts]
    assert len(set(together)) == len(set(texts))


def test_tables_of_many_chunks_are_hashed_in_order() -> None:
    rows = 2 * CHUNK_ROWS + 7
    table = pa.table({"n": np.arange(rows), "s": [str(n % 97) for n in range(rows)]})
    whole = row_hashes(table)
    assert len(whole) == rows
    assert whole == pa.concat_arrays([row_hashes(batch) for batch in table.to_batches(max_chunksize=1000)])


def test_nothing_has_no_hashes() -> None:
    empty = pa.table({"n": pa.array([], pa.int64())})
    assert row_hashes(empty) == pa.array([], pa.uint64())
    assert digest(row_hashes(empty)) == 0


def test_nested_nulls_and_slices() -> None:
    kind = pa.list_(pa.struct([("a", pa.string()), ("m", pa.map_(pa.int64(), pa.list_(pa.int32())))]))
    values: list[Any] = [
        [{"a": "x", "m": [(1, [1, None]), (2, None)]}, None],
        None,
        [],
        [{"a": None, "m": []}, {"a": "y", "m": None}, {"a": "z", "m": [(3, [])]}],
    ]
    alone = [hashes_of(pa.array([value], kind))[0] for value in values]
    assert hashes_of(pa.array(values, kind)) == alone
    assert hashes_of(pa.array(values * 3, kind).slice(3, 5)) == (alone * 3)[3:8]
    assert alone[1] == alone[2] == 42
    assert alone[0] != alone[3]


def test_a_digest_is_a_sum_without_order() -> None:
    words = pa.array([2**64 - 1, 5, 7], pa.uint64())
    assert digest(words) == 11
    assert digest(pa.chunked_array([words.slice(1), words.slice(0, 1)])) == 11


def test_types_that_spark_has_not_are_refused() -> None:
    with pytest.raises(TypeError, match="uint8"):
        hashes_of(pa.array([1], pa.uint8()))
