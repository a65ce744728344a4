"""Rows of the quarantine, kept as JSON, as values of a schema again."""

import json
from datetime import date, datetime, time, timezone
from decimal import Decimal
from math import isnan
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.json_row import RowUnreadable, require_readable, row_of, texts_of
from penstock.spark.schema import arrow_schema
from penstock.stage.aside import row_as_json


def schema(**kinds: Any) -> dict[str, Any]:
    return {"fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]}


UTC = timezone.utc
MAP = {"type": "map", "keyType": "integer", "valueType": "decimal(5,2)", "valueContainsNull": True}
ARRAY = {"type": "array", "elementType": "date", "containsNull": True}
STRUCT = {"type": "struct", "fields": schema(data="binary", at="timestamp")["fields"]}
EVERY: dict[str, tuple[Any, Any]] = {
    "yes": ("boolean", True),
    "byte": ("byte", -128),
    "long": ("long", 2**63 - 1),
    "real": ("double", 0.1),
    "huge": ("double", float("-inf")),
    "price": ("decimal(10,3)", Decimal("12345.600")),
    "text": ("string", 'a "b" \u00e9\n'),
    "data": ("binary", b"\x00\xff"),
    "day": ("date", date(1582, 10, 4)),
    "at": ("timestamp", datetime(2026, 11, 29, 11, 0, 0, 123456, UTC)),
    "local": ("timestamp_ntz", datetime(2026, 11, 29, 11, 0, 0, 1, UTC).replace(tzinfo=None)),
    "map": (MAP, {3: Decimal("1.25"), 4: None}),
    "days": (ARRAY, [date(2026, 1, 1), None]),
    "nested": (STRUCT, (b"x", datetime(1969, 12, 31, tzinfo=UTC))),
    "nothing": ("string", None),
}


def test_a_row_that_a_sink_could_not_take_comes_back_as_it_was() -> None:
    """What Arrow gives of it is written by the quarantine and read here."""
    columns = schema(**{name: kind for name, (kind, _) in EVERY.items()})
    values: dict[str, Any] = {name: value for name, (_, value) in EVERY.items()}
    data, at = values["nested"]
    given = values | {"nested": {"data": data, "at": at}, "map": list(values["map"].items())}
    arrow = pa.RecordBatch.from_pylist([given], schema=arrow_schema(json.dumps({"type": "struct", **columns})))
    [row] = arrow.to_pylist()
    assert row_of(row_as_json(row), columns) == tuple(value for _, value in EVERY.values())


def test_a_row_that_spark_wrote_comes_back_as_it_was() -> None:
    """Spark writes decimals as numbers, maps as objects, instants with Z, and no quotes around what is a number."""
    text = (
        '{"price":12345.600,"map":{"3":1.25},"at":"2026-11-29T11:00:00.123456Z","local":"2026-11-29T11:00:00.000001",'
        '"real":"NaN","data":"AP8=","long":9223372036854775807,"other":"left out"}'
    )
    columns = schema(
        price="decimal(10,3)", map=MAP, at="timestamp", local="timestamp_ntz", real="double", data="binary", long="long"
    )
    price, found, at, local, real, data, number = row_of(text, columns)
    assert (price, found, number, data) == (Decimal("12345.600"), {3: Decimal("1.25")}, 2**63 - 1, b"\x00\xff")
    assert (at, local) == (EVERY["at"][1], EVERY["local"][1])
    assert isnan(real)


def test_a_schema_that_was_widened_since_takes_the_old_values() -> None:
    text = '{"id":5,"delay":7,"rate":1,"gone":1}'
    assert row_of(text, schema(id="string", delay="long", rate="double", new="string")) == ("5", 7, 1.0, None)
    assert row_of('{"id":"12","at":"10:00:01"}', schema(id="integer", at="time(6)")) == (12, time(10, 0, 1))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", "abc"),
        ("integer", 2**31),
        ("integer", 1.5),
        ("integer", True),
        ("byte", -129),
        ("decimal(3,1)", "100.0"),
        ("decimal(3,1)", "1.25"),
        ("decimal(3,1)", "NaN"),
        ("boolean", 1),
        ("double", "much"),
        ("binary", "no base64!"),
        ("date", "yesterday"),
        ("timestamp", "2026-11-29T11:00:00"),
        ("timestamp_ntz", "2026-11-29T11:00:00Z"),
        (ARRAY, {"a": 1}),
        (STRUCT, [1]),
        (MAP, [1]),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_column(kind: Any, value: object) -> None:
    with pytest.raises(RowUnreadable, match="column c is of type"):
        row_of(json.dumps({"c": value}), schema(c=kind))


@pytest.mark.parametrize("kind", ["interval day to second", "variant", {"type": "udt"}])
def test_a_type_that_is_not_read_again_is_refused(kind: Any) -> None:
    with pytest.raises(RowUnreadable, match="which is not read from JSON again"):
        require_readable(schema(c=kind))
    require_readable(schema(**{name: kind for name, (kind, _) in EVERY.items()}))


@pytest.mark.parametrize("text", ["", "[1]", "{", "7"])
def test_what_is_no_row_is_refused(text: str) -> None:
    with pytest.raises(RowUnreadable, match="it is no JSON"):
        row_of(text, schema(c="long"))


def test_texts_are_found_beside_other_values() -> None:
    assert texts_of('{"a":"x","b":1,"c":null}') == {"a": "x", "c": None}
