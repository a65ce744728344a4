"""JSON and Protobuf, decoded in a real query on a real broker by a real registry, and what is no value of theirs put aside."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.dataset
import pytest
from google.protobuf import message_factory

from penstock.registry.protobuf import compiled
from penstock.registry.wire import Registered, framed
from tests.servers.fixtures import server
from tests.spark.test_quarantine import held, put_aside, run
from tests.spark.test_registry_page import at_home

pytestmark = pytest.mark.usefixtures("spark", at_home.__name__)

JSON_ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
        "any": {},
    },
}
ADDRESS = 'syntax = "proto3"; package shop; message Address { string city = 1; }'
ORDER = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "shop/address.proto";
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; map<string, int32> by = 3; Address to = 4; }
"""


def lake(directory: Path) -> list[dict[str, object]]:
    return list(pyarrow.dataset.dataset(directory / "lake", format="parquet").to_table().to_pylist())


def test_json_is_typed_by_its_schema(tmp_path: Path) -> None:
    orders = put_aside(
        tmp_path, **{"value: avro ": "value: json ", "value.*,": "value.id, value.items[0].n AS n, value.any AS more,"}
    )
    schema_id = orders.register(JSON_ORDER, kind="JSON")
    values = [{"id": 1, "items": [{"n": 0.5}], "any": {"a": 1}}, {"id": "x"}, {}]
    orders.send(*(framed(schema_id, json.dumps(value).encode()) for value in values))
    assert run(orders).last["sinks"]["quarantine"]["rows"] == 1
    rows = [(row["id"], row["n"], row["more"], row["offset"]) for row in lake(tmp_path)]
    assert Counter(rows) == Counter([(1, 0.5, '{"a":1}', 0), (None, None, None, 2)])
    [(_, _, offset, _, _, named)] = held(tmp_path)
    assert (offset, named) == (1, schema_id)


def test_protobuf_is_typed_by_its_message(tmp_path: Path) -> None:
    orders = put_aside(
        tmp_path, **{"value: avro ": "value: protobuf ", "value.*,": "value.id, value.at, value.by['a'] AS a, value.to.city,"}
    )
    server("registry").register(f"{orders.topic}-address", ADDRESS, kind="PROTOBUF")
    refers = {"name": "shop/address.proto", "subject": f"{orders.topic}-address", "version": 1}
    schema_id = orders.register(ORDER, kind="PROTOBUF", references=[refers])
    from penstock.registry.client import Registry
    from penstock.registry.wire import RegistryPlace

    known: Registered = Registry(RegistryPlace(urls=(server("registry").url,), name="registry")).by_id(schema_id)
    order = message_factory.GetMessageClass(compiled(known).message_types_by_name["Order"])(
        id=7, by={"a": 2}, to={"city": "Graz"}
    )
    order.at.FromJsonString("2026-01-01T00:00:00.250Z")
    good = framed(schema_id, b"\0" + order.SerializeToString())
    orders.send(good, good[:-1])
    assert run(orders).last["sinks"]["quarantine"]["rows"] == 1
    [row] = lake(tmp_path)
    assert (row["id"], row["a"], row["city"], str(row["at"])) == (7, 2, "Graz", "2026-01-01 00:00:00.250000+00:00")
