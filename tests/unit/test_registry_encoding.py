"""Rows written by schemas of a registry: what is written is read back the same, and what does not fit is told."""

import json
import pickle
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.unit.registry_values import ORDER, record
from tests.unit.test_registry_protobuf import ADDRESS, SHOP, SHOP_ROW

from penstock.errors import StageFailed, Usage
from penstock.registry.decoding import CodedColumn, arrow_type
from penstock.registry.encoding import EncodePass, schema_after_encoding
from penstock.registry.wire import Registered, schema_id_of
from penstock.support.error_transport import TaskFailed, from_task

NOW = datetime(2026, 3, 1, 12, 30, 1, 250_000, tzinfo=timezone.utc)
AVRO = record(
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "by", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    {"name": "unit", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
)
AVRO_ROW = {
    "id": 2**40,
    "note": None,
    "at": NOW,
    "day": date(2026, 3, 1),
    "price": Decimal("12.50"),
    "by": [("a", [1, 2]), ("b", [])],
    "unit": "7f125c6a-a84a-493f-95b0-92e4ac3a3975",
    "clock": 3723004,
    "kind": "B",
}
FLAG = record({"name": "set", "type": "boolean"}, name="Flag")
FLAGS = record(
    {"name": "flag", "type": "boolean"},
    {"name": "maybe", "type": ["null", "boolean"]},
    {"name": "each", "type": {"type": "array", "items": "boolean"}},
    {"name": "by", "type": {"type": "map", "values": "boolean"}},
    {"name": "inner", "type": ["null", FLAG]},
)
FLAGS_ROW = {"flag": True, "maybe": None, "each": [False], "by": [("a", True)], "inner": None}
FLAGS_NULL = ({"flag": None}, {"each": [True, None]}, {"by": [("a", None)]}, {"inner": {"set": None}})
FLAGS_SHOP = """
syntax = "proto3";
import "google/protobuf/wrappers.proto";
message Flags {
  bool flag = 1; optional bool maybe = 2; repeated google.protobuf.BoolValue each = 3;
  map<string, google.protobuf.BoolValue> by = 4; Inner inner = 5;
  message Inner { bool set = 1; }
}
"""
FLAGS_PROTOBUF_NULL = (*FLAGS_NULL, {"each": None}, {"by": None})
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "any": {},
        "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
        "by": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "none": {"type": "string"},
    },
}
JSON_ROW = {"id": 1, "any": '{"a":[1,null]}', "items": [{"n": 0.5}, None], "by": [("a", True)], "none": None}


def coded(kind: str, schema: object, *references) -> CodedColumn:
    text = str(schema) if kind == "protobuf" else json.dumps(schema)
    known = Registered(schema_id=77, kind=kind.upper(), text=text, references=references, version=3)
    return CodedColumn(column="value", format=kind, subject="orders-value", schema=known)


def encode(given: CodedColumn, *rows: object, like: "pa.DataType | None" = None) -> list[bytes | None]:
    values = pa.array(rows, like or arrow_type(given.reader().spark))
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(rows))), values], names=["n", "value"])
    travelled = pickle.loads(pickle.dumps(EncodePass(coded=(given,))))
    [made] = travelled(iter([batch]))
    assert made.schema.names == ["n", "value"]
    return made["value"].to_pylist()


@pytest.mark.parametrize(
    ("given", "row"),
    [
        (coded("avro", AVRO), AVRO_ROW),
        (coded("json", JSON), JSON_ROW),
        (coded("protobuf", SHOP, ADDRESS), SHOP_ROW),
        (coded("avro", FLAGS), FLAGS_ROW),
        (coded("protobuf", FLAGS_SHOP), FLAGS_ROW),
    ],
    ids=["avro", "json", "protobuf", "flags-of-avro", "flags-of-protobuf"],
)
def test_what_is_written_is_read_back_the_same(given, row):
    first, gone, again = encode(given, row, None, row)
    assert gone is None
    assert first == again
    assert schema_id_of(first) == 77
    reader = given.reader()
    [found] = pa.array([reader.read(first, given.schema)], arrow_type(reader.spark)).to_pylist()
    assert found == row


def test_what_is_null_is_left_out_of_json():
    [written] = encode(coded("json", JSON), JSON_ROW)
    assert json.loads(written[5:]) == {"id": 1, "any": {"a": [1, None]}, "items": [{"n": 0.5}, None], "by": {"a": True}}


@pytest.mark.parametrize(
    ("given", "row"),
    [
        (coded("avro", AVRO), {**AVRO_ROW, "kind": "C"}),
        (coded("avro", AVRO), {**AVRO_ROW, "id": None}),
        *[(coded("avro", FLAGS), {**FLAGS_ROW, **given}) for given in FLAGS_NULL],
        *[(coded("protobuf", FLAGS_SHOP), {**FLAGS_ROW, **given}) for given in FLAGS_PROTOBUF_NULL],
        *[(coded("protobuf", SHOP, ADDRESS), {**SHOP_ROW, name: None}) for name in ("id", "items", "by", "kind", "raw")],
        (coded("json", JSON), {**JSON_ROW, "any": "no json"}),
        (coded("json", JSON), {**JSON_ROW, "items": [{"n": float("nan")}]}),
        (coded("protobuf", SHOP, ADDRESS), {**SHOP_ROW, "kind": "C"}),
    ],
)
def test_what_a_schema_does_not_allow_is_told(given, row):
    with pytest.raises(TaskFailed) as raised:
        encode(given, row)
    told = from_task(str(raised.value))
    assert isinstance(told, StageFailed)
    assert "A value of column 'value' cannot be written by the schema with id 77 of subject 'orders-value': " in told.message


def columns(value: object) -> dict:
    fields = [{"name": "key", "type": "string", "nullable": True, "metadata": {}}]
    return {"type": "struct", "fields": [*fields, {"name": "value", "type": value, "nullable": True, "metadata": {}}]}


def struct(**fields: object) -> dict:
    made = [{"name": name, "type": kind, "nullable": False, "metadata": {}} for name, kind in fields.items()]
    return {"type": "struct", "fields": made}


ORDERS = coded("avro", ORDER)


def test_a_column_of_its_schemas_type_becomes_bytes():
    after = json.loads(schema_after_encoding(columns(struct(amount="double", id="long", customer="string")), [ORDERS]))
    assert [(field["name"], field["type"]) for field in after["fields"]] == [("key", "string"), ("value", "binary")]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("string", "value is string, expected struct"),
        (struct(id="integer", customer="string", amount="double"), "value.id is integer, expected long"),
        (struct(id="long", amount="double"), "value has no field 'customer'"),
        (struct(id="long", customer="string", amount="double", more="long"), "value has a field 'more' that the schema has not"),
    ],
)
def test_a_column_of_another_type_is_refused(value, told):
    with pytest.raises(Usage) as raised:
        schema_after_encoding(columns(value), [ORDERS])
    assert f"do not fit the schema of subject 'orders-value', version 3: {told}." in raised.value.message


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(Usage, match="There is no column 'value', which `encode` names"):
        schema_after_encoding(struct(key="string"), [ORDERS])
