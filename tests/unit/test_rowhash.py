"""Row hashes against values that Spark 4.3 printed for `SELECT xxhash64(…)`, and against themselves in other layouts."""

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.seed import SEED

from penstock.core.model import RowDigest
from penstock.core.row_hash import CHUNK_ROWS, digest, presence_masks, row_hashes

UTC = dt.timezone.utc
MANY = 6000
"""Rows with short texts that are hashed together, not one by one."""
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
    return row_hashes(pa.RecordBatch.from_arrays(list(columns), names=names), RowDigest.XXHASH64).to_pylist()


@pytest.mark.parametrize(("value", "kind", "expected"), SPARK, ids=lambda value: str(value)[:20])
def test_is_what_spark_says(value: Any, kind: pa.DataType, expected: int) -> None:
    assert hashes_of(pa.array([value], kind)) == [expected]
    assert hashes_of(pa.array([None, value, None, value], kind).slice(1, 3)) == [expected, 42, expected]
    assert set(hashes_of(pa.array([value] * MANY, kind))) == {expected}


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
    rng = random.Random(SEED)
    texts = [bytes(rng.randrange(256) for _ in range(length)) for length in [*range(100), 1000, 33, 0, 8, 31, 32, 64]]
    rng.shuffle(texts)
    together = hashes_of(pa.array(texts + [b""] * MANY))[: len(texts)]
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


@pytest.mark.parametrize(
    ("kind", "value", "other"),
    [
        (pa.int8(), 1, -1),
        (pa.int32(), 1, -1),
        (pa.int64(), 1, -1),
        (pa.float32(), 0.5, -0.0),
        (pa.float64(), 0.5, -0.0),
        (pa.bool_(), True, False),
        (pa.decimal128(9, 2), Decimal("1.25"), Decimal(-1)),
        (pa.decimal128(30, 2), Decimal("1.25"), Decimal(-1)),
        (pa.timestamp("ns"), 1_000, -1_000),
        (pa.string(), "x", "y" * 40),
    ],
    ids=str,
)
def test_a_null_in_an_array_leaves_the_seed_and_a_slice_has_its_own_elements(kind: pa.DataType, value: Any, other: Any) -> None:
    whole = pa.array([[other], [value, None, other], None, [None], [value, other]], pa.list_(kind))
    first, nulls, absent, null, plain = (hashes_of(whole.slice(at, 1))[0] for at in range(5))
    assert nulls == plain
    assert null == absent == 42
    assert len({first, plain, null}) == 3
    assert hashes_of(whole.slice(1)) == [nulls, absent, null, plain]


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.int64(), pa.float64(), pa.bool_(), pa.decimal128(9, 2), pa.decimal128(30, 2), pa.month_day_nano_interval()],
    ids=str,
)
def test_lists_without_elements_need_no_buffer_of_them(kind: pa.DataType) -> None:
    """Arrow lets an array of no values be without one."""
    nothing = pa.Array.from_buffers(kind, 0, [None, None])
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), nothing)
    assert hashes_of(lists) == [42, 42]


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.string(), pa.large_binary(), pa.decimal128(30, 2)], ids=str)
def test_lists_without_elements_may_have_a_buffer_of_any_size(kind: pa.DataType) -> None:
    buffers = [None, *[pa.py_buffer(bytes(9))] * (kind.num_buffers - 1)]
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.Array.from_buffers(kind, 0, buffers))
    assert hashes_of(lists) == [42, 42]


def test_what_lies_under_a_null_list_is_not_looked_at() -> None:
    """Here a time that is no whole number of microseconds, which Spark has no value for."""
    elements = pa.array([1, 2_000, 5_000], pa.timestamp("ns"))
    offsets = pa.array([0, 1, 3], pa.int32()).buffers()[1]
    lists = pa.Array.from_buffers(pa.list_(elements.type), 2, [pa.py_buffer(b"\x02"), offsets], children=[elements])
    assert hashes_of(lists) == hashes_of(pa.array([None, [2_000, 5_000]], lists.type))


def test_a_digest_is_a_sum_without_order() -> None:
    words = pa.array([2**64 - 1, 5, 7], pa.uint64())
    assert digest(words) == 11
    assert digest(pa.chunked_array([words.slice(1), words.slice(0, 1)])) == 11


def test_values_that_two_rows_exchange_count() -> None:
    """Each column holds the same values as before."""
    one, other = pa.table({"a": [1, 2], "b": [3, 4]}), pa.table({"a": [1, 2], "b": [4, 3]})
    assert all(digest(row_hashes(one, kind)) != digest(row_hashes(other, kind)) for kind in RowDigest)


def test_types_that_spark_has_not_are_refused() -> None:
    with pytest.raises(TypeError, match="uint8"):
        hashes_of(pa.array([1], pa.uint8()))


# --- which values are null

INTS = pa.list_(pa.int64())
POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])

GOLDEN = [7551557279339819239, 12240753448237672833, 421528801792629628]
WORDS = (1647321458749877361, 456631045143898068, 4517907942845847512)

ALIKE_WITHOUT_NULLS: tuple[tuple[pa.DataType, Any, Any], ...] = (
    (INTS, None, []),
    (INTS, [], [None]),
    (INTS, [None], [None, None]),
    (INTS, [1, None], [None, 1]),
    (pa.list_(pa.int64(), 2), [1, None], [None, 1]),
    (pa.large_list(pa.int64()), [1, None], [None, 1]),
    (pa.list_(INTS), [[1], [2]], [[1, 2], []]),
    (pa.list_(INTS), [[1], None], [[1], []]),
    (pa.list_(INTS), [None, [1]], [[None, 1], []]),
    (POINT, None, {"x": None, "y": None}),
    (POINT, {"x": 1, "y": None}, {"x": None, "y": 1}),
    (pa.struct([("p", POINT), ("z", pa.int64())]), {"p": {"x": 1, "y": None}, "z": None}, {"p": None, "z": 1}),
    (pa.list_(POINT), [{"x": 1, "y": None}], [{"x": None, "y": 1}]),
    (pa.list_(POINT), [None, {"x": 1, "y": 2}], [{"x": None, "y": None}, {"x": 1, "y": 2}]),
    (ENTRIES, None, []),
    (pa.map_(pa.string(), INTS), [("k", None)], [("k", [])]),
    (pa.map_(pa.int32(), pa.int32()), [(1, 2), (3, None)], [(1, None), (2, 3)]),
)


def covered(*columns: pa.Array, names: str | None = None) -> list[int]:
    rows = pa.RecordBatch.from_arrays(list(columns), names=list(names or "abcdefghij"[: len(columns)]))
    return row_hashes(rows, RowDigest.XXHASH64_NULLS).to_pylist()


@pytest.mark.parametrize(("kind", "one", "other"), ALIKE_WITHOUT_NULLS, ids=str)
def test_where_nulls_are_inside_of_a_value_counts(kind: pa.DataType, one: Any, other: Any) -> None:
    column = pa.array([one, other], kind)
    assert len(set(hashes_of(column))) == 1
    assert len(set(covered(column))) == 2


def test_a_value_that_moves_into_a_null_column_counts() -> None:
    debit, credit = pa.array([100, None, 7]), pa.array([None, 100, 7])
    assert digest(np.array(hashes_of(debit, credit), np.uint64)) == digest(np.array(hashes_of(credit, debit), np.uint64))
    assert len(set(hashes_of(debit, credit)[:2])) == 1
    assert len(set(covered(debit, credit))) == 3
    assert covered(debit, credit)[2] == covered(credit, debit)[2]


def test_elements_that_move_between_two_arrays_count() -> None:
    left, right = pa.array([[1], [1, 2], []], INTS), pa.array([[2], [], [1, 2]], INTS)
    assert len(set(hashes_of(left, right))) == 1
    assert len(set(covered(left, right))) == 3


def test_a_column_that_is_null_everywhere_counts_nowhere() -> None:
    """So that rows keep their hash when a column comes in, wherever that is."""
    numbers, texts, nulls = pa.array([1, None, 3]), pa.array(["x", "y", None]), pa.array([None] * 3, pa.int32())
    plain = covered(numbers, texts, names="nt")
    assert plain == covered(nulls, numbers, texts, names="0nt")
    assert plain == covered(numbers, nulls, texts, names="n0t")
    assert plain == covered(numbers, texts, pa.nulls(3), names="nt0")
    narrow, wide = pa.array([{"x": 1}, {"x": None}, None]), pa.array([{"y": None, "x": 1}, {"y": None, "x": None}, None])
    assert covered(narrow) == covered(wide.cast(pa.struct([("y", pa.int32()), ("x", pa.int64())])))


def test_names_count_but_not_their_case() -> None:
    numbers = pa.array([1, None])
    assert covered(numbers, names="n") == covered(numbers, names="N")
    assert covered(numbers, names="n")[0] != covered(numbers, names="m")[0]
    assert covered(numbers, names="n")[1] == covered(numbers, names="m")[1]
    assert len(set(presence_masks(("a", "A", "b", "a ")))) == 4


def test_hashes_that_cover_nulls_are_these_for_ever() -> None:
    """What ledgers hold is compared with them."""
    columns = (
        pa.array([1, None, 3]),
        pa.array(["a", "b", None]),
        pa.array([[1, None], [], None], INTS),
        pa.array([{"x": 1, "y": None}, None, {"x": None, "y": None}], POINT),
        pa.array([[("k", None)], [], None], ENTRIES),
    )
    assert covered(*columns) == GOLDEN
    assert presence_masks(("id", "Id", "naïve")) == WORDS


def test_covering_nulls_is_the_same_in_slices_chunks_and_other_layouts() -> None:
    chance = random.Random(SEED)
    kind = pa.list_(pa.struct([("a", pa.string()), ("m", pa.map_(pa.int64(), INTS))]))

    def some(make: Any) -> Any:
        return None if chance.random() < 0.3 else make()

    def value() -> Any:
        return [some(lambda: {"a": some(lambda: "x"), "m": some(entries)}) for _ in range(chance.randrange(4))]

    def entries() -> Any:
        return [(key, some(lambda: [some(lambda: 7) for _ in range(chance.randrange(3))])) for key in range(chance.randrange(3))]

    values = [some(value) for _ in range(300)]
    whole, columns = pa.array(values, kind), pa.array([some(lambda: 1) for _ in values])
    together = covered(whole, columns)
    assert together == [covered(pa.array([one], kind), columns[at : at + 1])[0] for at, one in enumerate(values)]
    assert together[37:91] == covered(whole.slice(37, 54), columns.slice(37, 54))
    table = pa.Table.from_arrays(
        [pa.chunked_array([whole[:5], whole[5:]]), pa.chunked_array([columns[:11], columns[11:]])], ["a", "b"]
    )
    assert together == row_hashes(table, RowDigest.XXHASH64_NULLS).to_pylist()


def test_covering_nulls_leaves_every_value_seen() -> None:
    """Values of all types, one changed at a time."""
    for value, kind, _ in SPARK:
        if value is not None:
            hashes = covered(pa.array([value, None, value], kind))
            assert hashes[0] == hashes[2] != hashes[1], kind


@pytest.mark.parametrize("longest", [0, 31, 80])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_a_text_of_a_dictionary_has_the_hash_of_the_text(kind: pa.DataType, longest: int) -> None:
    """Whatever its length, behind another column, and where values are null or the column is a slice."""
    chance = random.Random(f"{SEED} {longest}")
    entries = sorted({chance.randbytes(chance.randrange(longest + 1)).hex()[:longest] for _ in range(200)})
    texts = [chance.choice([None, *entries]) for _ in range(CHUNK_ROWS + 500)]
    plain = pa.array(texts if kind != pa.binary() else [text and text.encode() for text in texts], kind)
    seeds = pa.array(range(len(texts)))
    for column in (plain, plain.slice(300, 900), plain.slice(0, 0), pa.nulls(50, kind)):
        coded, rows = column.dictionary_encode(), seeds.slice(0, len(column))
        found = row_hashes(pa.table({"id": rows, "text": coded}))
        assert found.equals(row_hashes(pa.table({"id": rows, "text": column})))


def test_lists_beyond_the_rows_that_are_hashed_at_a_time_have_the_hash_of_their_own_elements() -> None:
    lists = pa.array([None if number % 7 == 0 else [number, None, f"{number}".count("1")] for number in range(2 * CHUNK_ROWS)])
    whole = row_hashes(pa.record_batch({"list": lists}))
    parts = [row_hashes(pa.record_batch({"list": lists.slice(start, 1_000)})) for start in range(0, len(lists), 1_000)]
    assert whole.equals(pa.concat_arrays(parts))
