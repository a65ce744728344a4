"""Protobuf's messages as Spark's types, and their values, as other schemas may have written them."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from google.protobuf import message_factory

from penstock.errors import Retryable, Usage
from penstock.registry.decoding import arrow_type
from penstock.registry.protobuf import ProtobufReader, compiled
from penstock.registry.wire import Reference, Registered, Undecodable, framed

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "shop/address.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  google.protobuf.Timestamp at = 3;
  repeated Item items = 4;
  map<string, Item> by = 5;
  Kind kind = 6;
  google.protobuf.StringValue wrapped = 7;
  uint64 large = 8;
  bytes raw = 9;
  Address to = 10;
  oneof either { int32 number = 11; string text = 12; }
  float f = 13; double d = 14; bool b = 15; uint32 u = 16; repeated Kind kinds = 17;
  message Item { double n = 1; }
  enum Kind { A = 0; B = 1; }
}
message Refund { int64 id = 1; }
"""
ADDRESS = Reference(name="shop/address.proto", text='syntax = "proto3"; package shop; message Address { string city = 1; }')
AT = datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=timezone.utc)
SHOP_ROW = {
    "id": 5,
    "note": None,
    "at": AT,
    "items": [{"n": 1.5}],
    "by": [("a", {"n": 2.0})],
    "kind": "B",
    "wrapped": "w",
    "large": Decimal(2**64 - 1),
    "raw": b"\xff",
    "to": {"city": "Graz"},
    "number": None,
    "text": "t",
    "f": 0.5,
    "d": 1e300,
    "b": True,
    "u": 2**32 - 1,
    "kinds": ["B", "7"],
}
"""An Order: `note` is left out, and of `either` the number."""
FIRST, SECOND, ITEM = b"\0", b"\x02\x02", b"\x04\x00\x00" + b""
"""The message's place in the file: `[0]` in short, `[1]`, `[0, 0]`."""


def registered(text: str, schema_id: int = 1, *references: Reference) -> Registered:
    return Registered(schema_id=schema_id, kind="PROTOBUF", text=text, references=references)


ORDERS = registered(SHOP, 1, ADDRESS)


def message(schema: Registered, name: str, **values: object):
    return message_factory.GetMessageClass(compiled(schema).message_types_by_name[name])(**values)


def read(reader: ProtobufReader, written: bytes, writer: Registered, path: bytes = FIRST):
    found = reader.read(framed(writer.schema_id, path + written), writer)
    return pa.array([found], arrow_type(reader.spark)).to_pylist()[0]


def test_every_kind_of_field_has_a_type_and_a_value():
    order = message(ORDERS, "Order", id=5, items=[{"n": 1.5}], by={"a": {"n": 2}}, kind=1, large=2**64 - 1, raw=b"\xff")
    order.MergeFrom(message(ORDERS, "Order", to={"city": "Graz"}, text="t", f=0.5, d=1e300, b=True, u=2**32 - 1, kinds=[1, 7]))
    order.at.FromDatetime(AT)
    order.wrapped.value = "w"
    assert read(ProtobufReader(ORDERS, subject="s"), order.SerializeToString(), ORDERS) == SHOP_ROW


def test_what_is_missing_is_null_or_the_default():
    row = read(ProtobufReader(ORDERS, subject="s"), b"", ORDERS)
    assert {name for name, value in row.items() if value is None} == {"note", "at", "wrapped", "to", "number", "text"}
    assert (row["id"], row["kind"], row["items"], row["raw"]) == (0, "A", [], b"")


def test_a_newer_value_is_read_by_the_older_message_even_if_it_moved_in_the_file():
    newer = registered("syntax = 'proto3'; package shop; message New {} message Refund { int64 id = 1; string why = 2; }", 2)
    older = registered("syntax = 'proto3'; package shop; message Refund { int64 id = 1; bool done = 3; }", 1)
    written = message(newer, "Refund", id=7, why="x").SerializeToString()
    assert read(ProtobufReader(older, subject="s"), written, newer, SECOND) == {"id": 7, "done": False}


GOOD = message(ORDERS, "Order", id=5, text="a text").SerializeToString()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (FIRST + GOOD[:-1], "it is no shop.Order"),
        (SECOND + GOOD, "it is a message shop.Refund, expected shop.Order"),
        (ITEM, "it is a message shop.Order."),
        (b"", "it names no message of its schema"),
        (b"\x02\x14", "it names no message of its schema"),
        (b"\x02\x01", "its number is negative"),
        (b"\xff" * 9, "its number has too many bytes"),
    ],
)
def test_what_is_no_value_of_the_message_is_told(value, told):
    with pytest.raises(Undecodable) as raised:
        ProtobufReader(ORDERS, subject="s").read(framed(1, value), ORDERS)
    assert told in raised.value.reason


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mess {", "no schema of Protobuf that protoc compiles"),
        ("syntax = 'proto3'; enum E { A = 0; }", "has no message"),
        ("syntax = 'proto3'; message A { B b = 1; } message B { A a = 1; }", "Field 'b.a' of subject 's' has no Spark type"),
    ],
)
def test_a_schema_without_a_type_is_refused(text, told):
    with pytest.raises(Usage) as raised:
        ProtobufReader(registered(text), subject="s")
    assert told in str(raised.value)


def test_nothing_is_written_beside_the_place_for_it():
    with pytest.raises(Usage, match="no name of a file below another"):
        compiled(registered("syntax = 'proto3';", 1, Reference(name="../outside.proto", text="")))


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may become larger meanwhile, as on a disk that is full."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def test_a_machine_without_room_makes_no_schema_wrong():
    large = registered('syntax = "proto3"; import "google/protobuf/descriptor.proto"; message Order { int64 id = 1; }', 88)
    reader, value = ProtobufReader(ORDERS, subject="s"), framed(88, FIRST + b"\x08\x05")
    with room_for(2000), pytest.raises(Retryable, match=r"cannot be compiled in .*: .*File too large"):
        reader.read(value, large)
    with pytest.raises(Undecodable, match=r"it is a message Order, expected shop\.Order"):
        reader.read(value, large)


def test_a_compiler_that_compiles_nothing_makes_no_schema_wrong(tmp_path, monkeypatch):
    text = 'syntax = "proto3"; import "google/protobuf/wrappers.proto"; message Order { int64 id = 1; }'
    with monkeypatch.context() as patch:
        patch.setattr("penstock.registry.protobuf._KNOWN_FILES", tmp_path)
        with pytest.raises(Retryable, match="it does not compile a schema that is right"):
            compiled(registered(text, 89))
    assert list(compiled(registered(text, 89)).message_types_by_name) == ["Order"]
