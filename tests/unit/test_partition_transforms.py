"""Partition values made in the tasks, without the library of Iceberg, are those that the library makes."""

import datetime as dt
import random
import re
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import Transform, parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from penstock.core.partition_term import PartitionTerm, parse_term
from penstock.errors import Usage
from penstock.sink.parquet.transforms import kind_of, transformed

RANDOM = random.Random(17)
TEXTS = (
    "",
    "a",
    "abc",
    "abcd",
    "abcde",
    "\U0001f600\U0001f601é漢",
    "null",
    "__HIVE_DEFAULT_PARTITION__",
    "ab\0c",
    "Straße 12 — ünï",
)
MICROS = (
    0,
    -1,
    1,
    -3_600_000_000,
    -3_600_000_001,
    86_399_999_999,
    -86_400_000_001,
    -62_135_596_800_000_000,
    253_402_300_799_999_999,
)


def whole(bits: int) -> list[int]:
    edge = 2 ** (bits - 1)
    return [0, 1, -1, edge - 1, 1000 - edge, *(RANDOM.randrange(1000 - edge, edge) >> RANDOM.randrange(bits) for _ in range(300))]


def texts() -> list[str]:
    letters = "aZ0 é漢\U0001f600"
    return [*TEXTS, *("".join(RANDOM.choices(letters, k=RANDOM.randrange(12))) for _ in range(300))]


def decimals(precision: int, scale: int) -> list[Decimal]:
    numbers = [0, 1, -1, 127, 128, -128, -129, 255, 256, -256, -257]
    edge = 10 ** (precision - 1)
    numbers += [RANDOM.randrange(1 - edge, edge) // 10 ** RANDOM.randrange(precision) for _ in range(300)]
    with localcontext() as context:
        context.prec = 50
        return [Decimal(number).scaleb(-scale) for number in numbers]


def moments() -> list[int]:
    return [*MICROS, *(RANDOM.randrange(-(10**16), 10**16) for _ in range(300))]


COLUMNS: dict[str, tuple[pa.DataType, IcebergType, Sequence[Any]]] = {
    "byte": (pa.int8(), IntegerType(), [0, 1, -1, 127, -100]),
    "int": (pa.int32(), IntegerType(), whole(32)),
    "long": (pa.int64(), LongType(), whole(64)),
    "date": (pa.date32(), DateType(), [0, -1, 1, -719162, 2932896, *(RANDOM.randrange(-719162, 2932896) for _ in range(300))]),
    "timestamp": (pa.timestamp("us"), TimestampType(), moments()),
    "timestamptz": (pa.timestamp("us", "UTC"), TimestamptzType(), moments()),
    "decimal": (pa.decimal128(9, 2), DecimalType(9, 2), decimals(9, 2)),
    "long decimal": (pa.decimal128(38, 10), DecimalType(38, 10), decimals(38, 10)),
    "string": (pa.string(), StringType(), texts()),
    "binary": (pa.binary(), BinaryType(), [*(text.encode() for text in texts()), b"\xff\x00", bytes(range(40))]),
}
TERMS = ("bucket(1, c)", "bucket(16, c)", "bucket(2147483647, c)", "truncate(1, c)", "truncate(3, c)", "truncate(1000, c)")
TIMES = ("years(c)", "months(c)", "days(c)", "hours(c)")


def of_library(term: PartitionTerm) -> Transform[Any, Any]:
    return parse_transform(f"{term.function}[{term.number}]" if term.number else term.function.removesuffix("s"))


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("text", [*TERMS, *TIMES])
def test_values_are_those_of_the_library(text: str, column: str) -> None:
    """The library's functions take what the format stores: days and microseconds as whole numbers."""
    stored, source, values = COLUMNS[column]
    term = parse_term(text)
    library = of_library(term)
    kind = kind_of(term.function, stored)
    assert (kind is not None) == library.can_transform(source)
    if kind is None:
        return
    given = [*values, None, *values[:5]]
    numbers = pa.int32() if pa.types.is_date32(stored) else pa.int64() if pa.types.is_timestamp(stored) else stored
    found = transformed(term, pa.array(given, numbers).cast(stored))
    assert found.type == kind
    expected = [library.transform(source)(value) for value in given]
    assert (found.cast(pa.int32()) if pa.types.is_date32(kind) else found).to_pylist() == expected
    part = transformed(term, pa.array([given[0], *given], numbers).cast(stored)[1:])
    assert part.equals(found)


@pytest.mark.parametrize(
    "kind", [pa.bool_(), pa.float32(), pa.float64(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])], ids=str
)
def test_other_types_have_no_such_partitions(kind: "pa.DataType") -> None:
    assert {kind_of(name, kind) for name in ("bucket", "truncate", "years", "months", "days", "hours")} == {None}


def test_what_has_no_value_is_refused() -> None:
    for text, value, kind in (
        ("truncate(1000, c)", -(2**63), pa.int64()),
        ("truncate(1000, c)", -(2**31), pa.int32()),
        ("truncate(1000, c)", Decimal("-99.99"), pa.decimal128(4, 2)),
    ):
        with pytest.raises(pa.ArrowInvalid):
            transformed(parse_term(text), pa.array([value], kind))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("days(created_at)", "days(created_at)"),
        (" Day( created_at ) ", "days(created_at)"),
        ("date(d)", "days(d)"),
        ("HOUR(t)", "hours(t)"),
        ("bucket(16,id)", "bucket(16, id)"),
        ("bucket( 016 , `a, b` )", "bucket(16, a, b)"),
        ("days(` x`)", "days(` x`)"),
        ("days(``x``)", "days(``x``)"),
        ("truncate(4, Größe (cm))", "truncate(4, Größe (cm))"),
    ],
)
def test_terms_have_one_spelling(text: str, canonical: str) -> None:
    assert str(parse_term(text)) == canonical == str(parse_term(canonical))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "weeks(t)",
            "partition_by has 'weeks(t)', expected a column or one of bucket, truncate, years, months, days, hours of one.",
        ),
        ("bucket(id)", "expected bucket(N, column), with a whole number first"),
        ("truncate(id, 4)", "expected truncate(W, column), with a whole number first"),
        ("bucket(0, id)", "expected N from 1 to 2147483647, found 0"),
        ("truncate(-3, id)", "expected W from 1 to 2147483647, found -3"),
        ("bucket(2147483648, id)", "expected N from 1 to 2147483647, found 2147483648"),
        ("days()", "which names no column"),
        ("bucket(4, )", "which names no column"),
    ],
)
def test_what_is_no_term_is_refused(text: str, message: str) -> None:
    with pytest.raises(Usage, match=re.escape(message)) as refused:
        parse_term(text)
    assert "bucket(16, column)" in refused.value.remedy


def test_days_are_dates() -> None:
    [found] = transformed(parse_term("days(c)"), pa.array([-1], pa.timestamp("us"))).to_pylist()
    assert found == dt.date(1969, 12, 31)
