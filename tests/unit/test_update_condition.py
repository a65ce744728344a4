"""`update_when`: the language, how columns are found, and values that compare as SQL has it."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.condition_value import bound_condition, condition_holds
from penstock.core.update_condition import parse_condition
from penstock.errors import Usage

ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("price", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("seen", pa.timestamp("us")),
        ("day", pa.date32()),
        ("name", pa.string()),
        ("is_new", pa.bool_()),
        ("size", pa.float64()),
        ("odd name", pa.int64()),
        ("tags", pa.list_(pa.string())),
    ]
)
INSTANT = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
OLD = {
    "id": 1,
    "small": 3,
    "price": Decimal("1.10"),
    "at": INSTANT,
    "seen": INSTANT.replace(tzinfo=None),
    "day": dt.date(2026, 1, 1),
    "name": "a",
    "is_new": True,
    "odd name": 7,
}
NEW = {"id": 1, "small": 4, "price": Decimal("2.00"), "odd name": 8}


def holds(text: str, old: dict[str, Any] = OLD, new: dict[str, Any] = NEW) -> bool:
    sides = [pa.Table.from_pylist([{**dict.fromkeys(ROWS.names), **row}], schema=ROWS) for row in (old, new)]
    [found] = condition_holds(bound_condition(parse_condition(text), ROWS), *sides).to_pylist()
    return bool(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("new.small > old.small", True),
        ("NEW.SMALL > OLD.Small AND old.name = 'a'", True),
        ("old.name <> 'it''s'", True),
        ("new.name <> old.name", False),
        ("NOT (new.name <> old.name)", False),
        ("new.name IS DISTINCT FROM old.name", True),
        ("new.name IS NOT DISTINCT FROM old.name", False),
        ("old.tags IS NULL AND new.at IS NULL AND old.at IS NOT NULL", True),
        ("not (new.small <= old.small)", True),
        ("old.is_new", True),
        ("NOT old.is_new OR old.is_new = FALSE", False),
        ("new.is_new OR old.is_new", True),
        ("new.is_new AND old.is_new", False),
        ("old.price < 1.5 AND old.price >= 1.1 AND old.small > -1", True),
        ("old.small = new.price", False),
        ("old.small < new.id", False),
        ("old.at < TIMESTAMP '2026-01-01T01:00:00+01:00'", False),
        ("old.at <= TIMESTAMP '2026-01-01 00:00:00'", True),
        ("old.seen = TIMESTAMP '2026-01-01T00:00:00'", True),
        ("old.day = DATE '2026-01-01' and '2025-12-31' < old.day", True),
        ('old.`odd name` < new."odd name"', True),
        ("old.id = 1 OR old.id = 2 AND old.id = 3", True),
        ("(old.id = 1 OR old.id = 2) AND old.id = 3", False),
        ("old.size IS NULL", True),
    ],
)
def test_what_is_true(text: str, *, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("new.small > 1", "which looks at no column of the table's row"),
        ("old.small >", "which ends too early"),
        ("(old.small = 1", r"which ends too early, expected \)"),
        ("old.small IS 1", "in which '1' is not understood, expected DISTINCT"),
        ("old.`odd name` + 1 = 8", "is not understood"),
        ("old.small = 1 2", "in which '2' is not understood"),
        ("old.small ! 3", "in which '!' is not understood"),
        ("small > old.small", "in which 'small' is not understood"),
        ("old.size > 1", "whose type double does not compare exactly"),
        ("old.tags = old.tags", "does not compare exactly"),
        ("old.nothing = 1", "names column 'old.nothing', but the rows have id, small"),
        ("old.small = 'a'", "whose operands cannot be compared"),
        ("old.small = new.name", "whose operands cannot be compared"),
        ("old.name", "whose operands cannot be compared: string is not true or false"),
        ("old.small < 99999999999999999999", "whose operands cannot be compared"),
        ("old.day < DATE '2026-13-01'", "in which '2026-13-01' is no DATE"),
        ("", "which ends too early"),
    ],
)
def test_conditions_that_are_refused(text: str, said: str) -> None:
    with pytest.raises(Usage, match=said) as refused:
        holds(text)
    assert refused.value.remedy


def test_columns_that_are_read() -> None:
    condition = parse_condition("new.a > old.b AND (old.b < 3 OR new.c IS NULL)")
    assert (condition.old_columns, condition.new_columns) == (["b"], ["a", "c"])
    assert condition == parse_condition(condition.text)
