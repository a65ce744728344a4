"""Columns of an Iceberg table: made of the rows' schema, and compared with those of an existing table.

Types are Iceberg's JSON. Numbers of fields are the table's own: creation assigns them, and comparison leaves them out.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from penstock.core.model import Json
from penstock.errors import Usage
from penstock.sink.iceberg.partitions import require_unambiguous
from penstock.sink.lake.columns import Column, require_columns
from penstock.sink.parquet.layout import partitions, require_distinct
from penstock.spark.schema import arrow_schema

_KEPT: Final = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_OF_SPARK: Final = {kind: name for name, kind in _KEPT.items() if name not in {"byte", "short"}}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def iceberg_schema(spark_json: str) -> str:
    """Return the JSON of a table for such rows. Raises Usage for a type or a name that this version does not write."""
    arrow_schema(spark_json)
    numbers, fields = count(1), json.loads(spark_json)["fields"]
    return json.dumps({"type": "struct", "fields": [_field(field, field["name"], numbers) for field in fields], "schema-id": 0})


def require_storable(spark_json: str, partition_by: Sequence[str]) -> None:
    """Raise Usage for rows that no table of Iceberg can hold, or that cannot be partitioned so."""
    iceberg_schema(spark_json)
    rows = arrow_schema(spark_json)
    require_distinct(rows, "Iceberg")
    require_unambiguous(partition_by, rows.names)
    partitions(rows, partition_by)


def require_fit(table: str, spark_json: str, *, where: str) -> None:
    """Raise Refused unless files of such rows may be added as they are to the table with the schema `table`, Iceberg's JSON."""
    may_be_null = {field["name"]: field["nullable"] for field in json.loads(spark_json)["fields"]}
    wanted = json.loads(iceberg_schema(spark_json))["fields"]
    rows = {field["name"]: _column(field, may_be_null=may_be_null[field["name"]]) for field in wanted}
    fields = {field["name"]: field for field in json.loads(table)["fields"]}
    there = {name: _column(field, may_be_null=not field["required"]) for name, field in fields.items() if name in rows}
    require_columns({name: not field["required"] for name, field in fields.items()}, there, rows, where=where)


def spark_types(table: str) -> Mapping[str, Json]:
    """Return the columns of the schema `table`, Iceberg's JSON, with Spark's types; a nested column keeps Iceberg's type."""
    kinds = {field["name"]: _bare(field["type"]) for field in json.loads(table)["fields"]}
    return {name: _OF_SPARK.get(kind, kind) if isinstance(kind, str) else kind for name, kind in kinds.items()}


def _column(field: Mapping[str, Any], *, may_be_null: bool) -> Column:
    return Column(kind=_bare(field["type"]), shown=_shown(field), may_be_null=may_be_null)


def _bare(kind: Any) -> Any:
    """Return a type without numbers, notes, and whether what is inside may be null: files say so themselves."""
    if isinstance(kind, str):
        found = _DECIMAL.fullmatch(kind)
        return kind if found is None else f"decimal({found[1]}, {found[2]})"
    if kind["type"] == "struct":
        return {"struct": [{field["name"]: _bare(field["type"])} for field in kind["fields"]]}
    if kind["type"] == "list":
        return {"list": _bare(kind["element"])}
    return {"key": _bare(kind["key"]), "value": _bare(kind["value"])}


def _field(field: Mapping[str, Any], path: str, numbers: Iterator[int]) -> dict[str, Any]:
    if "." in field["name"]:
        raise Usage(
            f"A column is named {path!r}, but Iceberg tells a column from a field inside of one by the dot.",
            remedy="Rename it in the transform.",
        )
    return {"id": next(numbers), "name": field["name"], "type": _type(field["type"], path, numbers), "required": False}


def _type(kind: Any, path: str, numbers: Iterator[int]) -> Any:
    """Return Iceberg's type: all that is inside of it may be null, as it is in the files. Raises Usage."""
    if isinstance(kind, str):
        return _plain(kind, path)
    if kind["type"] == "struct":
        return {"type": "struct", "fields": [_field(field, f"{path}.{field['name']}", numbers) for field in kind["fields"]]}
    if kind["type"] == "array":
        element = _type(kind["elementType"], f"{path}.element", numbers)
        return {"type": "list", "element-id": next(numbers), "element": element, "element-required": False}
    if kind["type"] == "map":
        key, value = _type(kind["keyType"], f"{path}.key", numbers), _type(kind["valueType"], f"{path}.value", numbers)
        ids = {"key-id": next(numbers), "value-id": next(numbers)}
        return {"type": "map", **ids, "key": key, "value": value, "value-required": False}
    return _plain(str(kind["type"]), path)


def _plain(kind: str, path: str) -> str:
    found = _DECIMAL.fullmatch(kind)
    if found is not None and int(found[2]) <= int(found[1]) <= 38:
        return f"decimal({found[1]}, {found[2]})"
    if kind not in _KEPT:
        raise Usage(
            f"Column {path!r} has the type {kind}, which this version does not write to Iceberg.",
            remedy="Cast it in the transform, to STRING or to a number, say.",
        )
    return _KEPT[kind]


def _shown(field: Mapping[str, Any]) -> str:
    kind = field["type"]
    return kind if isinstance(kind, str) else json.dumps(_bare(kind))
