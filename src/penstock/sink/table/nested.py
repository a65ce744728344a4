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


def to_json(column: "pa.Array") -> list[Any]:
    """Return the JSON text of each value. Raise ValueError or OverflowError for values that Python's dates cannot hold."""
    convert = _writer(column.type)
    return [None if value is None else _dumps(convert(value)) for value in column.to_pylist()]


def from_json(values: list[Any], kind: "pa.DataType") -> "pa.Array":
    """Return the column of `kind` from its JSON texts. Raise ValueError, TypeError or KeyError for any other text."""
    convert = _reader(kind)
    return pa.array([None if value is None else convert(json.loads(value)) for value in values], kind)


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


# --- writing


def _writer(kind: "pa.DataType") -> Convert:
    for is_kind, write in _WRITERS:
        if is_kind(kind):
            return _optional(write)
    return _nested_writer(kind)


def _nested_writer(kind: "pa.DataType") -> Convert:
    if pa.types.is_struct(kind):
        fields = [(field.name, _writer(field.type)) for field in kind]
        return _optional(lambda value: {name: write(value[name]) for name, write in fields})
    if pa.types.is_map(kind):
        return _optional(_map_writer(kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        write_element = _writer(kind.value_type)
        return _optional(lambda value: [write_element(element) for element in value])
    raise TypeError(f"Arrow's {kind} has no place in a database")


def _map_writer(kind: "pa.DataType") -> Convert:
    write_key, write_item = _writer(kind.key_type), _writer(kind.item_type)

    def write(value: list[tuple[Any, Any]]) -> Any:
        pairs = [[write_key(key), write_item(item)] for key, item in value]
        as_object = dict(pairs) if pa.types.is_string(kind.key_type) else None
        return as_object if as_object is not None and len(as_object) == len(pairs) else pairs

    return write


def _write_float(value: float) -> Any:
    return value if math.isfinite(value) else str(value)


def _write_moment(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(" ", "microseconds")
    return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ", "microseconds") + "Z"


_WRITERS: tuple[tuple[Callable[[Any], bool], Convert], ...] = (
    (lambda kind: pa.types.is_integer(kind) or pa.types.is_boolean(kind), lambda value: value),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), lambda value: value),
    (pa.types.is_null, lambda value: value),
    (pa.types.is_floating, _write_float),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), lambda value: b64encode(value).decode("ascii")),
    (pa.types.is_date, lambda value: value.isoformat()),
    (pa.types.is_timestamp, _write_moment),
    (pa.types.is_time, lambda value: value.isoformat("microseconds")),
    (pa.types.is_duration, lambda value: value // _MICROSECOND),
)


# --- reading


def _reader(kind: "pa.DataType") -> Convert:
    for is_kind, read in _READERS:
        if is_kind(kind):
            return _optional(read)
    return _nested_reader(kind)


def _nested_reader(kind: "pa.DataType") -> Convert:
    if pa.types.is_struct(kind):
        fields = [(field.name, _reader(field.type)) for field in kind]
        return _optional(lambda value: {name: read(value[name]) for name, read in fields})
    if pa.types.is_map(kind):
        read_key, read_item = _reader(kind.key_type), _reader(kind.item_type)
        return _optional(lambda value: [(read_key(key), read_item(item)) for key, item in _pairs(value)])
    read_element = _reader(kind.value_type)
    return _optional(lambda value: [read_element(element) for element in value])


def _pairs(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else value


def _read_moment(value: str) -> datetime:
    if value.endswith("Z"):
        return datetime.fromisoformat(value[:-1]).replace(tzinfo=timezone.utc)
    return datetime.fromisoformat(value)


def _only(kind: type) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__} in JSON, found {value!r}")
        return value

    return read


_READERS: tuple[tuple[Callable[[Any], bool], Convert], ...] = (
    (pa.types.is_integer, _only(int)),
    (pa.types.is_boolean, _only(bool)),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _only(str)),
    (pa.types.is_null, _only(type(None))),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), b64decode),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_timestamp, _read_moment),
    (pa.types.is_time, time.fromisoformat),
    (pa.types.is_duration, lambda value: value * _MICROSECOND),
)
