"""Conversion of Spark's schema JSON to a pyarrow schema, without pyspark.

The result is what a Python worker of Spark sees: the same names, types, nullability and column metadata that
`pyspark.sql.pandas.types.to_arrow_schema` gives. Sinks use it to prepare a target and to read one back on machines without Java.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import Usage

_METADATA_KEY = b"SPARK::metadata::json"
_COLLATIONS_KEY = "__COLLATIONS"

_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
        ]
    ),
}

_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], pa.DataType]], ...] = (
    (re.compile(r"decimal\((\d+),(-?\d+)\)"), lambda found: pa.decimal128(int(found[1]), int(found[2]))),
    (re.compile(r"decimal"), lambda _: pa.decimal128(10, 0)),
    (re.compile(r"(?:char|varchar)\(\d+\)"), lambda _: pa.string()),
    (re.compile(r"string collate \S+"), lambda _: pa.string()),
    (re.compile(r"time(?:\(\d\))?"), lambda _: pa.time64("ns")),
    (re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?"), lambda _: pa.duration("us")),
)


def arrow_schema(spark_json: str, *, timezone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema for `spark_json` (what `DataFrame.schema.json()` gives); zoned timestamps are in `timezone`.

    Raises Usage, naming the column, for a type that Arrow cannot carry (year-month and calendar intervals, geometry), and for
    text that is no Spark schema.
    """
    try:
        fields = json.loads(spark_json)["fields"]
        return pa.schema([_field(field, field["name"], timezone) for field in fields])
    except (ValueError, KeyError, TypeError) as cause:
        raise Usage(
            f"Expected the JSON of a Spark schema, found {spark_json[:200]!r}.", remedy="Give what `df.schema.json()` prints."
        ) from cause


def _field(field: Mapping[str, Any], path: str, timezone: str) -> pa.Field:
    metadata = {key: value for key, value in (field.get("metadata") or {}).items() if key != _COLLATIONS_KEY}
    encoded = {_METADATA_KEY: json.dumps(metadata).encode()} if metadata else None
    return _named(field["name"], _type(field["type"], path, timezone), nullable=field["nullable"], metadata=encoded)


def _named(name: str, data_type: pa.DataType, *, nullable: bool, metadata: dict[bytes, bytes] | None = None) -> pa.Field:
    return pa.field(name, data_type, nullable=nullable or pa.types.is_null(data_type), metadata=metadata)


def _type(data_type: str | Mapping[str, Any], path: str, timezone: str) -> pa.DataType:
    if not isinstance(data_type, str):
        return _nested(data_type, path, timezone)
    if data_type == "timestamp":
        return pa.timestamp("us", tz=timezone)
    if data_type in _PLAIN:
        return _PLAIN[data_type]
    for pattern, make in _PATTERNS:
        if found := pattern.fullmatch(data_type):
            return make(found)
    raise Usage(
        f"Column {path!r} has the Spark type {data_type!r}, which Arrow cannot carry to a sink.",
        remedy="Cast it in the transform, to STRING or to a number, say.",
    )


def _nested(data_type: Mapping[str, Any], path: str, timezone: str) -> pa.DataType:
    name = data_type["type"]
    if name == "struct":
        return pa.struct([_field(field, f"{path}.{field['name']}", timezone) for field in data_type["fields"]])
    if name == "array":
        element = _type(data_type["elementType"], f"{path}.element", timezone)
        return pa.list_(_named("element", element, nullable=data_type["containsNull"]))
    if name == "map":
        key = _named("key", _type(data_type["keyType"], f"{path}.key", timezone), nullable=False)
        value = _type(data_type["valueType"], f"{path}.value", timezone)
        return pa.map_(key, _named("value", value, nullable=data_type["valueContainsNull"]))
    if name == "udt":
        return _type(data_type["sqlType"], path, timezone)
    raise ValueError(name)
