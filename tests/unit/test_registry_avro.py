"""Avro's schemas as Spark's types, and values read by them, also where another schema has written them."""

from datetime import date, datetime, time, timezone
from decimal import Decimal
from functools import partial
from uuid import UUID

import pyarrow as pa
import pytest
from tests.unit.registry_values import ORDER, avro, record, registered

from penstock.errors import Usage
from penstock.registry.avro import AvroReader, AvroType
from penstock.registry.decoding import arrow_type
from penstock.registry.wire import Reference, Undecodable, schema_id_of

NOW = datetime(2026, 3, 1, 12, 30, 1, 250_000, tzinfo=timezone.utc)
UNIT = UUID("7f125c6a-a84a-493f-95b0-92e4ac3a3975")


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


TYPES = [
    ("boolean", "boolean", True, True),
    ("int", "integer", -5, -5),
    ("long", "long", 2**62, 2**62),
    ("float", "float", 0.5, 0.5),
    ("double", "double", 1e300, 1e300),
    ("string", "string", "ünï", "ünï"),
    ("bytes", "binary", b"\0\xff", b"\0\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, "binary", b"ab", b"ab"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", "B", "B"),
    (["null", "long"], "long", None, None),
    (["string", "null"], "string", "x", "x"),
    (["int", "long"], "long", 2**40, 2**40),
    (["float", "double", "null"], "double", 1e300, 1e300),
    (logical("int", "date"), "date", date(2026, 3, 1), date(2026, 3, 1)),
    (logical("long", "timestamp-millis"), "timestamp", NOW, NOW),
    (logical("long", "timestamp-micros"), "timestamp", NOW, NOW),
    (logical("long", "local-timestamp-millis"), "timestamp_ntz", NOW.replace(tzinfo=None), NOW.replace(tzinfo=None)),
    (logical("long", "local-timestamp-micros"), "timestamp_ntz", NOW.replace(tzinfo=None), NOW.replace(tzinfo=None)),
    (logical("int", "time-millis"), "integer", time(1, 2, 3, 4000), 3723004),
    (logical("long", "time-micros"), "long", time(1, 2, 3, 4), 3723000004),
    (logical("string", "uuid"), "string", UNIT, str(UNIT)),
    (logical("bytes", "decimal", precision=38, scale=2), "decimal(38,2)", Decimal("1" * 36 + ".25"), Decimal("1" * 36 + ".25")),
    (["null", logical("bytes", "decimal", precision=4)], "decimal(4,0)", Decimal(-12), Decimal(-12)),
]


@pytest.mark.parametrize(("schema", "spark", "written", "expected"), TYPES, ids=lambda value: str(value)[:40])
def test_a_type_becomes_sparks_and_its_values_arrows(schema, spark, written, expected):
    for whole, value in ((schema, written), (record({"name": "f", "type": schema}), {"f": written})):
        reader = AvroReader(registered(whole), subject="s")
        [found] = pa.array([reader.read(avro(whole, value), registered(whole))], arrow_type(reader.spark)).to_pylist()
        kind = reader.spark if isinstance(reader.spark, str) else reader.spark["fields"][0]["type"]
        assert (kind, found["f"] if isinstance(found, dict) else found) == (spark, expected)


def test_what_lies_inside_of_others_is_typed_too():
    item = record({"name": "at", "type": logical("int", "time-millis")}, name="Item")
    schema = record(
        {"name": "items", "type": {"type": "array", "items": item}},
        {"name": "by", "type": {"type": "map", "values": ["null", logical("string", "uuid")]}},
        {"name": "again", "type": ["null", "Item"]},
        {"name": "plain", "type": {"type": "map", "values": "int"}},
    )
    reader = AvroReader(registered(schema), subject="s")
    value = {"items": [{"at": time(0, 0, 1)}], "by": {"a": UNIT, "b": None}, "again": {"at": time(0, 0, 2)}, "plain": {"n": 1}}
    made = pa.array([reader.read(avro(schema, value), registered(schema))], arrow_type(reader.spark))
    assert made.to_pylist() == [
        {"items": [{"at": 1000}], "by": [("a", str(UNIT)), ("b", None)], "again": {"at": 2000}, "plain": [("n", 1)]}
    ]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (record({"name": "who", "type": ["int", "string"]}), "Field 'who' of subject 's' has no Spark type: it is a union"),
        (record({"name": "none", "type": "null"}), "null is a type without values"),
        (record({"name": "up", "type": ["null", "shop.Order"]}), "shop.Order contains itself"),
        (record({"name": "n", "type": logical("bytes", "decimal", precision=50, scale=2)}), "decimal of 50 digits"),
        (record({"name": "in", "type": {"type": "array", "items": ["string", "bytes"]}}), "Field 'in.element'"),
        ({"type": "rekord", "name": "x"}, "is no schema of Avro"),
    ],
)
def test_what_has_no_type_is_refused_by_its_name(schema, told):
    with pytest.raises(Usage) as raised:
        AvroReader(registered(schema), subject="s")
    assert told in str(raised.value)


def test_names_of_other_subjects_are_known():
    address = record({"name": "city", "type": "string"}, name="shop.Address")
    schema = record({"name": "to", "type": "shop.Address"})
    known = registered(schema, references=(Reference(name="shop.Address", text=registered(address).text),))
    inline = record({"name": "to", "type": address})
    assert AvroReader(known, subject="s").read(avro(inline, {"to": {"city": "Graz"}}), known) == {"to": {"city": "Graz"}}


NEW = record(
    {"name": "id", "type": "long"},
    {"name": "amount", "type": "double"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "mark", "type": "bytes", "default": "\u00ff"},
    {"name": "price", "type": logical("bytes", "decimal", precision=5, scale=2), "default": "\u0001\u0000"},
    {"name": "at", "type": logical("long", "timestamp-millis"), "default": 1000},
)


def test_an_older_value_is_read_by_the_newer_schema():
    old = record(
        {"name": "id", "type": "int"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "float"},
    )
    reader = AvroReader(registered(NEW, 9), subject="s")
    found = reader.read(avro(old, {"id": 1, "customer": "ann", "amount": 0.5}), registered(old))
    [row] = pa.array([found], arrow_type(reader.spark)).to_pylist()
    assert row == {
        "id": 1,
        "amount": 0.5,
        "note": None,
        "mark": b"\xff",
        "price": Decimal("2.56"),
        "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc),
    }


def test_a_number_whose_writer_did_not_call_it_a_time_is_in_its_unit():
    plain, timed = (record({"name": "at", "type": kind}) for kind in ("long", logical("long", "timestamp-millis")))
    reader = AvroReader(registered(timed, 2), subject="s")
    found = reader.read(avro(plain, {"at": 1250}), registered(plain))
    [row] = pa.array([found], arrow_type(reader.spark)).to_pylist()
    assert row["at"] == datetime(1970, 1, 1, 0, 0, 1, 250_000, tzinfo=timezone.utc)


VALUE = avro(ORDER, {"id": 1, "customer": "ann", "amount": 0.5})
OTHER = record({"name": "id", "type": "string"})


@pytest.mark.parametrize(
    ("value", "writer", "told"),
    [
        (VALUE[:-1], ORDER, "it ends too early for its schema"),
        (VALUE[:5], ORDER, "it ends too early for its schema"),
        (VALUE + b"\0", ORDER, "1 bytes are left over behind it"),
        (VALUE[:6] + b"\x02\xff" + VALUE[-8:], ORDER, "it is no value of its schema"),
        (avro(OTHER, {"id": "x"}), OTHER, "it cannot be read by the schema with id 1"),
    ],
)
def test_what_is_no_value_of_its_schema_is_told(value, writer, told):
    reader = AvroReader(registered(ORDER), subject="s")
    with pytest.raises(Undecodable) as raised:
        reader.read(value, registered(writer, 1 if writer is ORDER else 2))
    assert told in raised.value.reason
    assert raised.value.schema_id is not None


def test_a_machine_without_memory_makes_no_value_undecodable():
    """A limit of the system cannot be set for one process alone without ending it: the value's making fails as it would."""

    class Full(AvroReader):
        def __init__(self, trouble: Exception) -> None:
            super().__init__(registered(ORDER), subject="s")
            self._type = AvroType("long", partial(_fail, trouble))

    for trouble in (MemoryError(), OSError(28, "No space left on device")):
        with pytest.raises(type(trouble)):
            Full(trouble).read(VALUE, registered(ORDER))


def _fail(trouble: Exception, _: object) -> object:
    raise trouble


def test_a_writers_schema_that_is_none_makes_its_values_undecodable():
    writer = registered({"type": "rekord", "name": "x"}, 2)
    with pytest.raises(Undecodable, match="it is no value of its schema: The schema with id 2 is no schema of Avro"):
        AvroReader(registered(ORDER), subject="s").read(VALUE, writer)


@pytest.mark.parametrize(
    ("value", "told"),
    [(b"", "it has 0 bytes"), (b"\0\0\0\1", "it has 4 bytes"), (b'{"id": 1}', "it begins with the byte 0x7b, expected 0x00")],
)
def test_a_value_without_the_id_of_a_schema_is_told(value, told):
    with pytest.raises(Undecodable) as raised:
        schema_id_of(value)
    assert told in raised.value.reason
    assert schema_id_of(b"\0\x01\x02\x03\x04") == 0x01020304
