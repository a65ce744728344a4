"""Structs, arrays and maps as JSON text, which databases can read, and back to Arrow without loss.

A struct is an object, an array a list, a map with distinct text keys an object and any other map a list of `[key, value]`.
Inside, numbers and booleans are JSON's own; NaN, the infinities, decimals, dates and times are texts as in a plain column;
binary is base64.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

Convert: TypeAlias = Callable[[Any], Any]

_MICROSECOND = timedelta(microseconds=1)
_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def is_text(kind: Any) -> bool:
    """Return whether values of the type are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: Any) -> bool:
    """Return whether values of the type are bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def to_json(column: "pa.Array") -> list[Any]:
    """Return the JSON text of each value. Raise ValueError or OverflowError for values that Python's dates cannot hold."""
    convert = _converter(column.type, _WRITE)
    return [None if value is None else _dumps(convert(value)) for value in column.to_pylist()]


def from_json(values: list[Any], kind: "pa.DataType") -> "pa.Array":
    """Return the column of `kind` from its JSON texts. Raise ValueError, TypeError or KeyError for any other text."""
    convert = _converter(kind, _READ)
    return pa.array([None if value is None else convert(json.loads(value)) for value in values], kind)


def _converter(kind: "pa.DataType", way: int) -> Convert:
    """Return the function that converts a value, or NULL, to JSON (`way` is `_WRITE`) or back from it (`_READ`)."""
    convert = next((plain[way] for is_kind, *plain in _PLAIN if is_kind(kind)), None) or _nested_converter(kind, way)
    return lambda value: None if value is None else convert(value)


def _nested_converter(kind: "pa.DataType", way: int) -> Convert:
    if pa.types.is_struct(kind):
        fields = [(field.name, _converter(field.type, way)) for field in kind]
        return lambda value: {name: convert(value[name]) for name, convert in fields}
    if pa.types.is_map(kind):
        convert_key, convert_item = _converter(kind.key_type, way), _converter(kind.item_type, way)
        is_text = way == _WRITE and pa.types.is_string(kind.key_type)

        def convert_map(value: Any) -> Any:
            items = value.items() if isinstance(value, dict) else value
            pairs = [(convert_key(key), convert_item(item)) for key, item in items]
            as_object = dict(pairs) if is_text else None
            return as_object if as_object is not None and len(as_object) == len(pairs) else pairs

        return convert_map
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        convert_element = _converter(kind.value_type, way)
        return lambda value: [convert_element(element) for element in value]
    raise TypeError(f"Arrow's {kind} has no place in a database")


def _write_float(value: float) -> Any:
    return value if math.isfinite(value) else str(value)


def _write_moment(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(" ", "microseconds")
    return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ", "microseconds") + "Z"


def _read_moment(value: str) -> datetime:
    if value.endswith("Z"):
        return datetime.fromisoformat(value[:-1]).replace(tzinfo=timezone.utc)
    return datetime.fromisoformat(value)


def _as_is(value: Any) -> Any:
    return value


def _only(kind: type) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__} in JSON, found {value!r}")
        return value

    return read


_WRITE, _READ = 0, 1
_PLAIN: tuple[tuple[Callable[[Any], bool], Convert, Convert], ...] = (
    (pa.types.is_integer, _as_is, _only(int)),
    (pa.types.is_boolean, _as_is, _only(bool)),
    (is_text, _as_is, _only(str)),
    (pa.types.is_null, _as_is, _only(type(None))),
    (pa.types.is_floating, _write_float, float),
    (pa.types.is_decimal, lambda value: format(value, "f"), Decimal),
    (is_bytes, lambda value: b64encode(value).decode("ascii"), b64decode),
    (pa.types.is_date, lambda value: value.isoformat(), date.fromisoformat),
    (pa.types.is_timestamp, _write_moment, _read_moment),
    (pa.types.is_time, lambda value: value.isoformat("microseconds"), time.fromisoformat),
    (pa.types.is_duration, lambda value: value // _MICROSECOND, lambda value: value * _MICROSECOND),
)
"""How values of plain types are written and read."""
