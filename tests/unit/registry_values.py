"""Schemas and values for the tests of registries, written by fastavro alone."""

import io
import json
from typing import Any

import fastavro

from penstock.registry.wire import Reference, Registered, framed

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}, {"name": "amount", "type": "double"}],
}


def record(*fields: dict[str, Any], name: str = "shop.Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def registered(schema: object, schema_id: int = 1, *, references: tuple[Reference, ...] = ()) -> Registered:
    return Registered(schema_id=schema_id, kind="AVRO", text=json.dumps(schema), references=references)


def avro(schema: object, value: object, schema_id: int = 1) -> bytes:
    """A value as a producer's serializer writes it."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return framed(schema_id, written.getvalue())
