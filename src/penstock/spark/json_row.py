"""Rows of the quarantine, which are kept as JSON, as Python values of a schema again.

Two writers made them: Spark's `to_json` (rows that did not meet a rule), and `penstock.stage.aside.row_as_json` (rows that a sink
could not take). Both are read here: decimals as numbers or texts, maps as objects or lists of pairs, bytes in base64.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

_WHOLE = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TEXT = re.compile(r"(string|char|varchar)\b")
_TIME = re.compile(r"time(\(\d\))?")


class RowUnreadable(ValueError):
    """A row that is no row of the schema; says which column is why."""


def row_of(text: str, schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a row in the order of `schema`, Spark's JSON. A column that the row lacks is None.

    Columns that the schema lacks are left out. Raises RowUnreadable.
    """
    found = _parsed(text)
    return tuple(_value(found.get(field["name"]), field["type"], field["name"]) for field in schema["fields"])


def texts_of(text: str) -> Mapping[str, str | None]:
    """Return the columns of a row that are texts, or None. Raises RowUnreadable."""
    return {name: value for name, value in _parsed(text).items() if value is None or isinstance(value, str)}


def require_readable(schema: Mapping[str, Any]) -> None:
    """Raise RowUnreadable for a schema with a type whose values are not read from JSON again."""
    for field in schema["fields"]:
        _reader(field["type"], field["name"])


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text, parse_float=Decimal)
    except ValueError as cause:
        raise RowUnreadable(f"it is no JSON ({cause})") from cause
    if not isinstance(found, dict):
        raise RowUnreadable("it is no JSON object")
    return found


def _value(value: Any, kind: Any, column: str) -> Any:
    read = _reader(kind, column)
    if value is None:
        return None
    try:
        return read(value)
    except RowUnreadable:
        raise
    except (ValueError, TypeError, OverflowError, InvalidOperation, ArithmeticError) as cause:
        shown = kind if isinstance(kind, str) else kind["type"]
        raise RowUnreadable(f"column {column} is of type {shown} and holds another value ({type(value).__name__})") from cause


def _reader(kind: Any, column: str) -> Callable[[Any], Any]:
    if isinstance(kind, dict):
        return _nested(kind, column)
    name = str(kind)
    if _TEXT.match(name):
        return _text
    if name in _WHOLE:
        return partial(_whole, bits=_WHOLE[name])
    if (decimal := _DECIMAL.fullmatch(name)) is not None:
        return partial(_decimal, precision=int(decimal[1]), scale=int(decimal[2]))
    found = _PLAIN.get("time" if _TIME.fullmatch(name) else name)
    if found is None:
        raise RowUnreadable(f"column {column} is of type {name}, which is not read from JSON again")
    return found


def _nested(kind: Mapping[str, Any], column: str) -> Callable[[Any], Any]:
    if kind["type"] == "struct":
        for field in kind["fields"]:
            _reader(field["type"], f"{column}.{field['name']}")
        return partial(_struct, fields=kind["fields"], column=column)
    if kind["type"] == "array":
        _reader(kind["elementType"], column)
        return partial(_array, element=kind["elementType"], column=column)
    if kind["type"] == "map":
        for part in ("keyType", "valueType"):
            _reader(kind[part], column)
        return partial(_map, key=kind["keyType"], kind=kind["valueType"], column=column)
    raise RowUnreadable(f"column {column} is of type {kind['type']}, which is not read from JSON again")


def _struct(value: Any, *, fields: Sequence[Mapping[str, Any]], column: str) -> tuple[Any, ...]:
    found = _of_class(value, dict)
    return tuple(_value(found.get(each["name"]), each["type"], f"{column}.{each['name']}") for each in fields)


def _array(value: Any, *, element: Any, column: str) -> list[Any]:
    return [_value(each, element, column) for each in _of_class(value, list)]


def _map(value: Any, *, key: Any, kind: Any, column: str) -> dict[Any, Any]:
    pairs = value.items() if isinstance(value, dict) else [tuple(each) for each in _of_class(value, list)]
    return {_value(name, key, column): _value(each, kind, column) for name, each in pairs}


def _of_class(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    """Return a text. A value that was of another type before the schema was changed becomes the text of its JSON."""
    return value if isinstance(value, str) else str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)


def _whole(value: Any, *, bits: int) -> int:
    if isinstance(value, bool):
        raise TypeError(value)
    number = int(value)
    if number != Decimal(value) or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(value)
    return number


def _decimal(value: Any, *, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool):
        raise TypeError(value)
    number = Decimal(value)
    digits = number.as_tuple()
    if not number.is_finite() or -int(digits.exponent) > scale or len(digits.digits) + int(digits.exponent) > precision - scale:
        raise ValueError(value)
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[value] if value in {"true", "false"} else _of_class(value, bool)


def _real(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _bytes(value: Any) -> bytes:
    return b64decode(_of_class(value, str), validate=True)


def _date(value: Any) -> date:
    return date.fromisoformat(_of_class(value, str))


def _instant(value: Any) -> datetime:
    found = datetime.fromisoformat(_of_class(value, str))
    if found.tzinfo is None:
        raise ValueError(value)
    return found.astimezone(timezone.utc)


def _local_time(value: Any) -> datetime:
    found = datetime.fromisoformat(_of_class(value, str))
    if found.tzinfo is not None:
        raise ValueError(value)
    return found


def _time_of_day(value: Any) -> time:
    return time.fromisoformat(_of_class(value, str))


_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "boolean": _boolean,
    "float": _real,
    "double": _real,
    "binary": _bytes,
    "date": _date,
    "timestamp": _instant,
    "timestamp_ntz": _local_time,
    "time": _time_of_day,
}
