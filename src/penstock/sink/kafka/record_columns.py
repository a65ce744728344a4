"""What of the pipeline's rows makes a Kafka record, where the settings say it: single columns, or one JSON object."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.model import SinkName
from penstock.errors import Usage
from penstock.protocols import OwnRows
from penstock.sink.kafka.target import HEADERS, KEY, PARTITION, VALUE
from penstock.spark.column_name import quoted

_T = "concat('yyyy-MM-dd', char(39), 'T', char(39), 'HH:mm:ss.SSSSSS{zone}')"
"""Quotes are char(39), since it depends on the session's settings how a literal escapes one."""
_JSON: Final = {
    "timeZone": "'UTC'",
    "ignoreNullFields": "'true'",
    "dateFormat": "'yyyy-MM-dd'",
    "timestampFormat": _T.format(zone="XXX"),
    "timestampNTZFormat": _T.format(zone=""),
}
"""Options of `to_json`, as SQL: all that the session's settings would decide otherwise. Spark's own formats drop microseconds."""
_OPTIONS: Final = "map(" + ", ".join(f"'{name}', {value}" for name, value in _JSON.items()) + ")"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Columns that make a record. `json`: those of the JSON object that is the value, all if empty; None: `value` is a column."""

    value: str | None = None
    json: tuple[str, ...] | None = None
    key: str | None = None
    headers: str | None = None
    partition: str | None = None

    def own_rows(self, schema: str, *, sink: SinkName) -> OwnRows:
        """Return the columns of records, always in the same order. Raises Usage for a column that does not exist."""
        fields: Mapping[str, Mapping[str, Any]] = {field["name"]: field for field in json.loads(schema)["fields"]}
        named = (self.key, self.value, *(self.json or ()), self.headers, self.partition)
        for name in named:
            if name is not None and name not in fields:
                raise Usage(
                    f"Sink {sink!r} takes a column {name!r} for its records, and the rows have {', '.join(fields)}.",
                    remedy="Correct the sink's settings, or select the column in the transform.",
                )
        made: dict[str, tuple[str, object]] = {}
        if self.key is not None:
            made[KEY] = _as_bytes(fields[self.key], sink)
        made[VALUE] = _json_of(self.json or tuple(fields)) if self.value is None else _as_bytes(fields[self.value], sink)
        for own, column in ((HEADERS, self.headers), (PARTITION, self.partition)):
            if column is not None:
                made[own] = quoted(column), fields[column]["type"]
        parts = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, (_, kind) in made.items()]
        columns = {name: sql for name, (sql, _) in made.items()}
        return OwnRows(columns=columns, schema=json.dumps({"type": "struct", "fields": parts}))


def _json_of(columns: tuple[str, ...]) -> tuple[str, object]:
    return f"to_json(struct({', '.join(map(quoted, columns))}), {_OPTIONS})", "string"


def _as_bytes(field: Mapping[str, Any], sink: SinkName) -> tuple[str, object]:
    name, kind = quoted(field["name"]), field["type"]
    if not isinstance(kind, str) or kind == "variant":
        raise Usage(
            f"Sink {sink!r} takes column {field['name']!r} as it is, and its values are nested.",
            remedy="Write value: {json: [column]}, or make a text of it in the transform.",
        )
    if kind == "timestamp":  # a cast would show it in the session's time zone
        return f"get_json_object(to_json(struct({name} AS at), {_OPTIONS}), '$.at')", "string"
    return (name, kind) if kind == "binary" else (f"CAST({name} AS STRING)", "string")
