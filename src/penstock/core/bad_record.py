"""What the quarantine keeps of a record that cannot be decoded: bytes as they came, where it came from, and why."""

import json

from penstock.core.model import SinkName

NAME = SinkName("quarantine")
"""The sink's name in the ledger and in reports."""

_HEADER = [
    {"name": "key", "type": "string", "nullable": True, "metadata": {}},
    {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
]
_HEADERS = {"type": "array", "elementType": {"type": "struct", "fields": _HEADER}, "containsNull": True}
_COLUMNS = {
    "source": "string",
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": _HEADERS,
    "undecodable": "string",
    "schema_id": "integer",
    "error": "string",
}
RAW = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""Those that are as the broker has them."""

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _COLUMNS.items()],
    }
)
"""Spark's JSON of the columns. `undecodable`: `key` or `value`; `schema_id`: what that names, null if it names none."""

UNKNOWN = "unknown"
_CHECKED = json.loads(SCHEMA)
SCHEMA_CHECKED = json.dumps(
    {**_CHECKED, "fields": [*_CHECKED["fields"], {"name": UNKNOWN, "type": "boolean", "nullable": False, "metadata": {}}]}
)
"""The same with a column that says whether the registry did not know the schema, which may change. It is not kept."""

PACKED = "records"
"""A column of such rows as Arrow's own bytes."""
