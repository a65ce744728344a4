"""Columns of the quarantine sink: a record as it came, where it came from, and the reason."""

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
    "rule": "string",
    "row": "string",
    "file": "string",
    "sink": "string",
    "history": "string",
    "replayed": "string",
}
RAW = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns that hold the record as the broker has it."""

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _COLUMNS.items()],
    }
)
"""Spark's JSON of the columns. `undecodable` is `key` or `value`; `schema_id` is the id in front of its bytes, null if none.

`rule` names the rule of the source that the record does not meet, and `row` is the row that it was applied to, as JSON; both are
null for an undecodable record. `file` is where a row of a file came from. Of a row that a sink cannot take there are only `sink`,
`row` and `error`. `history` is JSON: of a record that was replayed and put aside again, the earlier times, oldest first. A row
with `replayed` is the receipt of a record that was replayed, named as `QuarantinedRecord.key_text` says; all else in it is null.
Files of an older Penstock lack the last six columns, or the last two.
"""

HISTORY = "history"
"""Name of the column with the history of a record."""

RECORD = "_penstock_record"
"""Name of a struct column with where a row came from: the fields RECORD_FIELDS, of which those that do not apply are null."""

RECORD_FIELDS = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "key": "BINARY",
    "value": "BINARY",
    "headers": "STRING",
    "file": "STRING",
    "history": "STRING",
}
"""The fields of RECORD with their SQL types. `history` is that of a record that is replayed.

`headers` are JSON: Spark's Arrow cannot pass on every null inside of them.
"""

UNKNOWN = "unknown"
_CHECKED = json.loads(SCHEMA)
SCHEMA_CHECKED = json.dumps(
    {**_CHECKED, "fields": [*_CHECKED["fields"], {"name": UNKNOWN, "type": "boolean", "nullable": False, "metadata": {}}]}
)
"""`SCHEMA` and a column that is true where the registry did not know the schema, which may change. It is not delivered."""

PACKED = "records"
"""Name of a binary column that holds rows of `SCHEMA_CHECKED` as an Arrow IPC stream."""
