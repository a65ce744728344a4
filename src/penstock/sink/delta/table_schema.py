"""Columns of a Delta table: made of the rows' schema, and compared with those of an existing table.

Delta writes a schema as Spark does. Created columns may all be null, as in every table that Spark creates.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import Refused, Usage
from penstock.sink.lake.columns import Column, require_columns, require_partitions
from penstock.sink.lake.write_mode import APPEND, WriteMode
from penstock.sink.parquet.layout import partition_columns, require_distinct
from penstock.spark.schema import arrow_schema

_KEPT: Final = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"}
)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_IN_NO_NAME = re.compile(r"[ ,;{}()\n\t=]")
_CONSTRAINT: Final = "delta.constraints."
_COLUMN_MAPPING: Final = "delta.columnMapping.mode"
_SWITCHED: Final = {
    "delta.enableRowTracking": "row tracking",
    "delta.enableInCommitTimestamps": "in-commit timestamps",
    "delta.enableDeletionVectors": "deletion vectors",
}
_BY_COLUMN: Final = {
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "delta.invariants": "an invariant",
    "CURRENT_DEFAULT": "a default",
}
_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "timestampNtz", "changeDataFeed"}
    | {"checkConstraints", "generatedColumns", "identityColumns", "columnMapping"}  # listed by upgrades where nothing uses them
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """What the log of a table says of it. `schema` is its JSON, `features` are those that its protocol lists by name."""

    schema: str
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    features: frozenset[str]


def delta_schema(spark_json: str) -> str:
    """Return the JSON of a table for such rows. Raises Usage for a type or a name that not every reader of Delta takes."""
    arrow_schema(spark_json)
    fields = json.loads(spark_json)["fields"]
    for field in fields:
        if _IN_NO_NAME.search(field["name"]):
            raise Usage(
                f"A column is named {field['name']!r}, but Delta allows none of ' ,;{{}}()=', tab and line break in a name.",
                remedy="Rename it in the transform.",
            )
    return json.dumps({"type": "struct", "fields": [_field(field, field["name"]) for field in fields]})


def require_storable(spark_json: str, partition_by: Sequence[str]) -> None:
    """Raise Usage for rows that no table of Delta can hold, or that cannot be partitioned so."""
    delta_schema(spark_json)
    rows = arrow_schema(spark_json)
    require_distinct(rows, "Delta")
    partition_columns(rows, tuple(partition_by))


def require_fit(table: TableSchema, spark_json: str, partition_by: Sequence[str], *, where: str) -> None:
    """Raise Refused unless files of such rows may be added to the table as they are: nothing checks or converts them later."""
    require_supported(table, where=where)
    require_partitions(table.partition_by, partition_by, where=where)
    may_be_null = {field["name"]: field["nullable"] for field in json.loads(spark_json)["fields"]}
    wanted = json.loads(delta_schema(spark_json))["fields"]
    rows = {field["name"]: _column(field, may_be_null=may_be_null[field["name"]]) for field in wanted}
    fields = {field["name"]: field for field in json.loads(table.schema)["fields"]}
    there = {name: _column(field, may_be_null=field["nullable"]) for name, field in fields.items() if name in rows}
    require_columns({name: field["nullable"] for name, field in fields.items()}, there, rows, where=where)


def _column(field: Mapping[str, Any], *, may_be_null: bool) -> Column:
    return Column(kind=_field(field, field["name"])["type"], shown=_shown(field), may_be_null=may_be_null)


def require_supported(table: TableSchema, *, where: str) -> None:
    """Raise Refused for a table with a feature that asks more of a writer than to add files."""
    unsupported = next(_unsupported(table), None)
    if unsupported is not None:
        raise Refused(
            f"The table {where} has {unsupported}, which this version does not write.",
            remedy="Name another table, or copy its rows into one without.",
        )


def require_changeable(table: TableSchema, mode: WriteMode, *, where: str) -> None:
    """Raise Refused for an append-only table, and for one whose change data feed would report rows that did not change."""
    if mode.write != APPEND and table.properties.get("delta.appendOnly") == "true":
        raise Refused(
            f"The table {where} has delta.appendOnly, and write: {mode.write} takes rows out of it.",
            remedy="Set write: append, unset that property of the table, or name another table.",
        )
    if mode.is_by_key and table.properties.get("delta.enableChangeDataFeed") == "true":
        raise Refused(
            f"The table {where} has a change data feed, and write: {mode.write} rewrites files: the feed would tell of rows that "
            "did not change.",
            remedy="Unset delta.enableChangeDataFeed of the table, or name another table.",
        )


def _unsupported(table: TableSchema) -> Iterator[str]:
    if table.properties.get(_COLUMN_MAPPING, "none") != "none":
        yield "column mapping"
    yield from ("a CHECK constraint" for key in table.properties if key.startswith(_CONSTRAINT))
    yield from (what for key, what in _SWITCHED.items() if table.properties.get(key) == "true")
    for field in json.loads(table.schema)["fields"]:
        metadata = field.get("metadata") or {}
        yield from (f"{what}, {field['name']!r}" for key, what in _BY_COLUMN.items() if key in metadata)
    yield from (f"the feature {feature}" for feature in sorted(table.features - _FEATURES))


def _field(field: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {"name": field["name"], "type": _type(field["type"], path), "nullable": True, "metadata": {}}


def _type(kind: Any, path: str) -> Any:
    """Return Delta's type: all that is inside of it may be null, as it is in the files. Raises Usage."""
    if isinstance(kind, str):
        found = _DECIMAL.fullmatch(kind)
        if kind in _KEPT or (found is not None and int(found[2]) <= int(found[1]) <= 38):
            return kind
    elif kind["type"] == "struct":
        return {"type": "struct", "fields": [_field(field, f"{path}.{field['name']}") for field in kind["fields"]]}
    elif kind["type"] == "array":
        return {"type": "array", "elementType": _type(kind["elementType"], f"{path}.element"), "containsNull": True}
    elif kind["type"] == "map":
        key, value = _type(kind["keyType"], f"{path}.key"), _type(kind["valueType"], f"{path}.value")
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise Usage(
        f"Column {path!r} has the type {kind if isinstance(kind, str) else kind['type']}, which this version does not write to "
        "Delta.",
        remedy="Cast it in the transform, to STRING or to a number, say.",
    )


def _shown(field: Mapping[str, Any]) -> str:
    kind = field["type"]
    return kind if isinstance(kind, str) else json.dumps(kind)
