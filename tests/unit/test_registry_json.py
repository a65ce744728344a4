"""JSON Schemas as Spark's types, and values as those types hold them."""

import inspect
import json
import math
import sys

import pyarrow as pa
import pytest

from penstock.errors import Usage
from penstock.registry.decoding import arrow_type
from penstock.registry.json_schema import JsonReader
from penstock.registry.wire import Reference, Registered, Undecodable, framed


def registered(schema, *, references=()):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Registered(schema_id=3, kind="JSON", text=text, references=references)


def read(schema, value, *, references=()):
    """Spark's type, and what a column of Arrow's then holds."""
    known = registered(schema, references=references)
    reader = JsonReader(known, subject="s")
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    [found] = pa.array([reader.read(framed(3, text), known)], arrow_type(reader.spark)).to_pylist()
    return reader.spark, found


@pytest.mark.parametrize(
    ("schema", "spark", "value", "expected"),
    [
        ({"type": "string", "format": "date-time"}, "string", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ({"type": "integer"}, "long", -(2**63), -(2**63)),
        ({"type": "integer"}, "long", 2.0, 2),
        ({"type": "number"}, "double", 1, 1.0),
        ({"type": ["null", "boolean"]}, "boolean", None, None),
        ({"type": ["boolean", "null"]}, "boolean", True, True),
        ({"enum": ["a", "b"]}, "string", "a", "a"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "long", 5, 5),
        ({"type": ["integer", "string"]}, "string", 5, "5"),
        ({"type": "object"}, "string", {"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ({"type": "array"}, "string", [1, None], "[1,null]"),
        ({}, "string", "x", '"x"'),
        (True, "string", 1.5, "1.5"),
    ],
)
def test_a_type_becomes_sparks_or_stays_json(schema, spark, value, expected):
    assert read(schema, value) == (spark, expected)
    kind, found = read({"type": "object", "properties": {"f": schema}}, {"f": value, "more": 1})
    assert (kind["fields"][0]["type"], found) == (spark, {"f": expected})


def test_objects_arrays_and_maps_are_typed_inside():
    schema = {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/definitions/item"}},
            "by": {"type": "object", "additionalProperties": {"type": "integer"}},
            "to": {"$ref": "address.json"},
            "parent": {"$ref": "#"},
        },
        "definitions": {"item": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    address = Reference(name="address.json", text='{"type": "object", "properties": {"city": {"type": "string"}}}')
    value = {"items": [{"n": 1}, {}, None], "by": {"a": 1, "b": None}, "to": {"city": "Graz"}, "parent": {"by": {}}}
    _, found = read(schema, value, references=(address,))
    assert found == {
        "items": [{"n": 1}, {"n": None}, None],
        "by": [("a", 1), ("b", None)],
        "to": {"city": "Graz"},
        "parent": '{"by":{}}',
    }
    assert read(schema, {}, references=(address,))[1] == dict.fromkeys(value)


ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "any": {},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
    },
}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b'{"id": 1', "it is no JSON"),
        (b"\xff", "it is no JSON"),
        (b'{"rows": [{"n": NaN}]}', "NaN is no number of JSON"),
        (b"[" * 100_000, "nested more than 200 levels deep"),
        ({"id": "x"}, 'id should be a whole number, found "x"'),
        ({"id": 1.5}, "id should be a whole number, found 1.5"),
        (b'{"id": 1e400}', "id should be a whole number"),
        ({"id": 2**63}, "id should be a whole number of 64 bits"),
        ({"id": True}, "id should be a whole number, found true"),
        (b'{"rows": [{"n": 1e999}]}', "rows[0].n should be a number that a double holds, found Infinity"),
        (b'{"rows": [{"n": 1' + b"0" * 400 + b"}]}", "rows[0].n should be a number that a double holds, found 1000"),
        (b'{"any": [1, -1e999]}', "any holds a number beyond the range of a double"),
        (b'{"id": "\\ud800"}', r'id should be a whole number, found "\ud800"'),
        ({"name": 1}, "name should be a text, found 1"),
        ({"rows": [{}, {"n": "x"}]}, 'rows[1].n should be a number, found "x"'),
        ({"rows": {}}, "rows should be an array, found {}"),
        ([1], "it should be an object, found [1]"),
    ],
)
def test_what_does_not_fit_is_told_by_its_place(value, told):
    with pytest.raises(Undecodable) as raised:
        read(ORDER, value)
    assert told in raised.value.reason
    assert raised.value.schema_id == 3


def below(frames: int, made):
    """What `made` gives with that many more frames on the stack."""
    return made() if frames == 0 else below(frames - 1, made)


def verdict(value: bytes) -> str:
    try:
        return str(read({"type": "object", "properties": {"f": {}}}, value)[1])
    except Undecodable as reason:
        return reason.reason


@pytest.mark.parametrize(
    ("levels", "told"), [(200, "{'f': '["), (201, "its objects and arrays are nested more than 200 levels deep")]
)
def test_how_deep_a_value_may_be_does_not_depend_on_the_stack(levels, told):
    """Two passes over a batch read it, each from another depth: one verdict for both, or a record is lost or doubled."""
    value = b'{"f":' + b"[" * (levels - 1) + b'"[[{' + b"{" * 300 + b'"' + b"]" * (levels - 1) + b"}"
    shallow = verdict(value)
    assert shallow.startswith(told)
    assert below(300, lambda: verdict(value)) == shallow


def test_brackets_side_by_side_and_in_texts_are_not_deep():
    assert read({}, [[{}]] * 500)[1].startswith("[[{}],[{}],")
    texts = ['\\"[{' * 100, "\\\\", "["] * 3
    assert json.loads(read({}, texts)[1]) == texts


def test_a_value_deeper_than_the_stack_fails_the_task():
    known, value = registered({}), framed(3, b"[" * 190 + b"]" * 190)
    reader = JsonReader(known, subject="s")
    left = sys.getrecursionlimit() - len(inspect.stack())
    assert below(left // 2, lambda: reader.read(value, known)).startswith("[[")
    with pytest.raises(RecursionError):
        below(left - 100, lambda: reader.read(value, known))


def test_json_in_utf_16_is_read():
    assert read({"type": "string"}, '"ü"'.encode("utf-16"))[1] == "ü"


@pytest.mark.parametrize(("value", "expected"), [(sys.float_info.max, sys.float_info.max), (10**300, 1e300)])
def test_what_a_double_holds_is_a_number(value, expected):
    assert read({"type": "number"}, value)[1] == expected


@pytest.mark.parametrize("number", [b"9007199254740993.25", b"0.99999999999999999999", b"1e-400", b"1e-99999999999999999999"])
def test_what_is_no_whole_number_is_not_made_one(number):
    with pytest.raises(Undecodable, match="it should be a whole number"):
        read({"type": "integer"}, number)


def test_a_number_with_a_point_is_read_as_before_where_it_need_not_be_whole():
    assert read({"type": "integer"}, b"9007199254740993.0")[1] == 2**53 + 1
    assert read({"type": "number"}, b"9007199254740993.0")[1] == 2.0**53
    assert math.copysign(1, read({"type": "number"}, b"-0.0")[1]) == -1
    assert read({}, b'{"a":[2.0,1e3,0.5]}')[1] == '{"a":[2.0,1000.0,0.5]}'


def test_half_of_a_character_can_be_told_and_kept():
    reason = Undecodable("it is \ud800").reason
    assert reason == r"it is \ud800"
    assert pa.array([reason]).to_pylist() == [reason]


def test_what_is_no_schema_is_refused():
    with pytest.raises(Usage, match="The schema of subject 's' is no JSON Schema"):
        JsonReader(registered("{"), subject="s")
