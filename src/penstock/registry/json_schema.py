"""JSON: maps JSON Schemas to Spark types, and reads and writes JSON values of these types.

What no Spark type can express (several types, any object, something that contains itself) stays JSON, as text. JSON Schema has no
rules for reading by another schema than the writer's: fields are found by name, and what is missing is null.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from penstock.core.codec.document import refuse_constant
from penstock.core.model import Json
from penstock.errors import Usage
from penstock.registry.wire import HEAD, Registered, Undecodable

Make: TypeAlias = Callable[[Any, str], Any]
Schema: TypeAlias = Mapping[str, Any]

_LONGEST = 2**63
_DIGITS = 40
"""More than any whole number of 64 bits has."""
_LARGEST = sys.float_info.max
_DEEPEST = 64
_DEEPEST_VALUE = 200
"""Most levels of a value. Python's own limit depends on the depth of the stack, which differs from one pass to another."""
_TEXT_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


class Misfit(ValueError):
    """A value does not fit the reader's schema; the message names its place."""


@dataclass(frozen=True, slots=True)
class JsonType:
    """How a value maps: Spark's type, `make` from parsed JSON and its place, and `unmake` back to JSON."""

    spark: Json
    make: Make
    unmake: Callable[[Any], Any] = lambda value: value


class JsonReader:
    """Reads and writes JSON values by the schema `reader`."""

    kind = "JSON"

    def __init__(self, reader: Registered, *, subject: str) -> None:
        self._reader = reader
        self._type = _Types(reader, subject).of({"$ref": "#"}, ())

    @property
    def spark(self) -> Json:
        return self._type.spark

    def read(self, value: bytes, writer: Registered) -> Any:
        try:
            found = loaded(value[HEAD:], schema_id=writer.schema_id, parse_float=_float)
            return None if found is None else self._type.make(found, "")
        except Misfit as error:
            reason = f"it does not fit the schema with id {self._reader.schema_id}: {error}"
            raise Undecodable(reason, schema_id=writer.schema_id) from error

    def write(self, value: Any) -> bytes:
        """Encode a value from Arrow, without the schema's id and without the null fields of structs."""
        return json.dumps(self._type.unmake(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def loaded(value: bytes, *, schema_id: int | None = None, parse_float: Callable[[str], Any] | None = None) -> Any:
    """Parse JSON. Raises Undecodable for what is none, or is nested too deep."""
    try:
        text = value.decode(json.detect_encoding(value), "surrogatepass")
        if _is_deep(text):
            raise Undecodable(f"its objects and arrays are nested more than {_DEEPEST_VALUE} levels deep", schema_id=schema_id)
        return json.loads(text, parse_constant=refuse_constant, parse_float=parse_float)
    except ValueError as error:
        raise Undecodable(f"it is no JSON: {error}", schema_id=schema_id) from error


class _Types:
    """Maps one schema to Spark types, recursively."""

    def __init__(self, reader: Registered, subject: str) -> None:
        try:
            self._documents: dict[str, Any] = {one.name: json.loads(one.text) for one in reader.references}
            self._documents[""] = json.loads(reader.text)
        except ValueError as error:
            raise Usage(
                f"The schema of subject {subject!r} is no JSON Schema: {error}.", remedy="Name another `subject` or `version`."
            ) from error

    def of(self, schema: Any, above: tuple[str, ...]) -> JsonType:
        """Return the type that `schema` describes; `above` are the references on the way to it."""
        if not isinstance(schema, dict):
            return _TEXT
        if "$ref" in schema:
            return self._referred(str(schema["$ref"]), above)
        choices = [one for one in schema.get("oneOf") or schema.get("anyOf") or () if one != {"type": "null"}]
        if choices or "allOf" in schema:
            parts = choices or schema["allOf"]
            return self.of(parts[0], above) if len(parts) == 1 else _TEXT
        kind = _kind_of(schema)
        if kind == "array" and isinstance(schema.get("items"), dict):
            return _array(self.of(schema["items"], above))
        return self._object(schema, above) if kind == "object" else _PLAIN.get(kind or "", _TEXT)

    def _referred(self, reference: str, above: tuple[str, ...]) -> JsonType:
        if reference in above or len(above) > _DEEPEST:
            return _TEXT
        name, _, pointer = reference.partition("#")
        found: Any = self._documents.get(name)
        for step in pointer.strip("/").split("/") if pointer.strip("/") else ():
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return self.of(found, (*above, reference))

    def _object(self, schema: Schema, above: tuple[str, ...]) -> JsonType:
        fields, others = schema.get("properties") or {}, schema.get("additionalProperties")
        if fields:
            return _record({name: self.of(field, above) for name, field in fields.items()})
        return _map(self.of(others, above)) if isinstance(others, dict) else _TEXT


def _kind_of(schema: Schema) -> str | None:
    """Return the one type of all values that are not null, None if there can be several."""
    values = schema.get("enum") or ()
    texts = bool(values) and all(isinstance(value, str) for value in values)
    given = schema.get("type", "string" if texts else None)
    kinds = [kind for kind in (given if isinstance(given, list) else [given]) if kind != "null"]
    return kinds[0] if len(kinds) == 1 else None


def _record(fields: Mapping[str, JsonType]) -> JsonType:
    spark: Any = [{"name": name, "type": field.spark, "nullable": True, "metadata": {}} for name, field in fields.items()]

    def made(value: Any, place: str) -> dict[str, Any]:
        given = taken(value, dict, "an object", place)
        return {
            name: None if given.get(name) is None else field.make(given[name], f"{place}.{name}".lstrip("."))
            for name, field in fields.items()
        }

    def unmade(value: Any) -> dict[str, Any]:
        return {name: field.unmake(value[name]) for name, field in fields.items() if value[name] is not None}

    return JsonType({"type": "struct", "fields": spark}, made, unmade)


def _array(element: JsonType) -> JsonType:
    def made(value: Any, place: str) -> list[Any]:
        given = enumerate(taken(value, list, "an array", place))
        return [None if one is None else element.make(one, f"{place}[{index}]") for index, one in given]

    def unmade(values: Any) -> list[Any]:
        return [None if one is None else element.unmake(one) for one in values]

    return JsonType({"type": "array", "elementType": element.spark, "containsNull": True}, made, unmade)


def _map(inner: JsonType) -> JsonType:
    def made(value: Any, place: str) -> list[tuple[str, Any]]:
        given = taken(value, dict, "an object", place).items()
        return [(key, None if one is None else inner.make(one, f"{place}.{key}".lstrip("."))) for key, one in given]

    def unmade(pairs: Any) -> dict[str, Any]:
        return {key: None if one is None else inner.unmake(one) for key, one in pairs}

    return JsonType({"type": "map", "keyType": "string", "valueType": inner.spark, "valueContainsNull": True}, made, unmade)


def taken(value: Any, kind: type, expected: str, place: str) -> Any:
    """Return `value`. Raises Misfit unless it is of that `kind`."""
    if not isinstance(value, kind):
        raise misfit(value, expected, place)
    return value


class WrittenFloat(float):
    """A double that is a whole number, with the `text` of JSON, which may have been another number."""

    __slots__ = ("text",)
    text: str


def _float(text: str) -> float:
    """Return the nearest double. Where that is a whole number, the text stays with it."""
    found = float(text)
    if not found.is_integer():
        return found
    written = WrittenFloat(found)
    written.text = text
    return written


def whole(value: Any, place: str) -> int:
    """Return a whole number of 64 bits. JSON Schema counts 1.0 among the whole numbers, as it is written. Raises Misfit."""
    exact = _decimal_of(value.text) if isinstance(value, WrittenFloat) else value
    found = _exactly(exact)
    if found is None:
        raise misfit(exact, "a whole number", place)
    if not -_LONGEST <= found < _LONGEST:
        raise misfit(exact, "a whole number of 64 bits", place)
    return found


def _decimal_of(text: str) -> Decimal:
    """Return a number as it is written, NaN for an exponent that no decimal has."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


def _exactly(value: Any) -> int | None:
    """Return a number as a whole one, None if it is none. A decimal beyond 64 bits becomes some number beyond them."""
    if isinstance(value, Decimal):
        if not value:
            return 0
        if not value.is_finite() or (value.adjusted() < _DIGITS and value != value.to_integral_value()):
            return None
        return int(value) if value.adjusted() < _DIGITS else _LONGEST
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: Any, place: str) -> float:
    """Return the double that is nearest to a number. Raises Misfit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise misfit(value, "a number", place)
    if not -_LARGEST <= value <= _LARGEST:
        raise misfit(value, "a number that a double holds", place)
    return float(value)


def _as_json(value: Any, place: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise Misfit(f"{place or 'it'} holds a number beyond the range of a double") from error


def misfit(value: Any, expected: str, place: str) -> Misfit:
    """Return the error that `value` is not what was expected at its place."""
    found = str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)
    shown = found if len(found) <= 60 else f"{found[:59]}…"
    return Misfit(f"{place or 'it'} should be {expected}, found {shown}")


def _is_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= _DEEPEST_VALUE:
        return False
    level = 0
    for found in _TEXT_OR_BRACKET.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if level > _DEEPEST_VALUE:
            return True
    return False


_TEXT = JsonType("string", _as_json, json.loads)
_PLAIN: Mapping[str, JsonType] = {
    "string": JsonType("string", lambda value, place: taken(value, str, "a text", place)),
    "integer": JsonType("long", whole),
    "number": JsonType("double", number),
    "boolean": JsonType("boolean", lambda value, place: taken(value, bool, "true or false", place)),
}
