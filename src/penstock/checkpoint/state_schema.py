"""The schemas of state stores, as Spark wrote them when the query began: columns of keys and values, without Java."""

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.entries import Unreadable
from penstock.checkpoint.files import Files
from penstock.checkpoint.state import DEFAULT_STORE

_WATERMARK = "spark.watermarkDelayMs"
"""In the metadata of a column: the watermark is on it."""
READ_VERSIONS = frozenset({"v1", "v2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSchema:
    """The columns of a store's keys and values, as `name TYPE, …`, and whether the watermark is on one of them."""

    key: str
    value: str
    watermark_in_key: bool
    watermark_in_value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVariable:
    """One variable of `transformWithState`, or a list that Spark keeps for one or for timers: those names begin with `$`."""

    name: str
    schema: StateSchema


def schema_of(files: Files, operator_id: int, store: str) -> StateSchema | None:
    """Return the schema of a store; None if it has none that is read, as one of `transformWithState`. Raises Unreadable."""
    below = "" if store == DEFAULT_STORE else f"/{store}"
    data = files.read(f"state/{operator_id}/0{below}/_metadata/schema")
    return None if data is None or version_of(data) not in READ_VERSIONS else _schema(*schema_texts(data))


def variables_of(files: Files, operator_id: int, store: str) -> tuple[StateVariable, ...]:
    """Return the variables of a store of `transformWithState` by its newest schema, none for others. Raises Unreadable."""
    folder = f"state/{operator_id}/_stateSchema/{store}"
    newest = max((name for name in files.names(folder) if _NUMBERED.fullmatch(name)), key=_number, default=None)
    data = None if newest is None else files.read(f"{folder}/{newest}")
    return () if data is None or version_of(data) != _OF_VARIABLES else tuple(_variables(data))


_OF_VARIABLES = "v3"
_NUMBERED = re.compile(r"(\d+)_[0-9a-f-]+")


def _number(name: str) -> int:
    return int(name.partition("_")[0])


def _schema(key_text: str, value_text: str) -> StateSchema:
    key, value = json.loads(key_text), json.loads(value_text)
    return StateSchema(
        key=_columns(key),
        value=_columns(value),
        watermark_in_key=_has_watermark(key),
        watermark_in_value=_has_watermark(value),
    )


def _variables(data: bytes) -> Iterator[StateVariable]:
    """Yield the variables of a schema file of version 3: name, then key and value each with a number, then two encodings."""
    _, at = _text(data, 0)
    count, at = int.from_bytes(data[at : at + 4], "big"), at + 4
    for _ in range(min(count, len(data))):
        name, at = _text(data, at)
        key, at = _parts(data, at + 2)
        value, at = _parts(data, at + 2)
        _, at = _parts(data, at)
        _, at = _parts(data, at)
        _require_json(key)
        _require_json(value)
        yield StateVariable(name=name, schema=_schema(key, value))


def version_of(data: bytes) -> str:
    """Return the version of a schema file, such as `v2`. Raises Unreadable if it is cut off."""
    return _text(data, 0)[0]


def schema_texts(data: bytes) -> tuple[str, str]:
    """Return the JSON of key and value in a schema file of `READ_VERSIONS`. Raises Unreadable if it is cut off."""
    version, at = _text(data, 0)
    found = list[str]()
    for _ in ("key", "value"):
        text, at = _parts(data, at) if version == "v2" else _text(data, at)
        _require_json(text)
        found.append(text)
    if at != len(data):
        raise Unreadable("goes on behind its end")
    return found[0], found[1]


def _parts(data: bytes, at: int) -> tuple[str, int]:
    """Return a text that is written in parts, for a part has at most 65,535 bytes, and where it ends."""
    count, at = int.from_bytes(data[at : at + 4], "big"), at + 4
    texts = list[str]()
    for _ in range(min(count, len(data))):
        text, at = _text(data, at)
        texts.append(text)
    return "".join(texts), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    try:
        (size,) = struct.unpack_from(">H", data, at)
    except struct.error:
        raise Unreadable("is cut off") from None
    if len(data) < at + 2 + size:
        raise Unreadable("is cut off")
    return data[at + 2 : at + 2 + size].decode("utf-8", "replace"), at + 2 + size


def _require_json(text: str) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("is cut off") from None


def _columns(schema: Any) -> str:
    return ", ".join(f"{name} {_type(data_type)}" for name, data_type, _ in _fields(schema))


def _fields(schema: Any) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    for field in fields if isinstance(fields, Sequence) else ():
        yield str(field.get("name")), field.get("type"), field.get("metadata") or {}


def _type(data_type: Any) -> str:
    """Return a type of Spark's JSON as Spark SQL writes it."""
    if not isinstance(data_type, dict):
        return _SQL_NAMES.get(str(data_type), str(data_type).upper())
    kind = data_type.get("type")
    if kind == "struct":
        return f"STRUCT<{', '.join(f'{name}: {_type(inner)}' for name, inner, _ in _fields(data_type))}>"
    if kind == "array":
        return f"ARRAY<{_type(data_type.get('elementType'))}>"
    if kind == "map":
        return f"MAP<{_type(data_type.get('keyType'))}, {_type(data_type.get('valueType'))}>"
    return str(kind).upper()


_SQL_NAMES = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}


def _has_watermark(schema: Any) -> bool:
    return any(_WATERMARK in metadata or _has_watermark(data_type) for _, data_type, metadata in _fields(schema))
