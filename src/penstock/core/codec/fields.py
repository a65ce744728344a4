"""Exact readers for the fields of a durable value: any other type is damage, raised as DamagedError and never converted."""

from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class DamagedError(Exception):
    """A field does not fit. The message does not name the document: only the caller knows which one it is."""


def require_fields(fields: dict[str, Any], names: frozenset[str]) -> None:
    """Raise DamagedError unless `fields` has exactly these names. A missing and a foreign field are both damage."""
    if fields.keys() != names:
        different = ", ".join(sorted(fields.keys() ^ names))
        raise DamagedError(f"expected the fields {', '.join(sorted(names))}, found others: {different}")


def record(value: object, names: frozenset[str]) -> dict[str, Any]:
    """Return `value`, an object with exactly these fields."""
    fields = mapping(value)
    require_fields(fields, names)
    return fields


def mapping(value: object) -> dict[str, Any]:
    """Return `value`, an object with any fields."""
    if type(value) is not dict:
        raise DamagedError(f"expected an object, found {_kind_of(value)}")
    return value


def items(value: object) -> list[Any]:
    """Return `value`, a list."""
    if type(value) is not list:
        raise DamagedError(f"expected a list, found {_kind_of(value)}")
    return value


def text(value: object) -> str:
    """Return `value`, a string."""
    if type(value) is not str:
        raise DamagedError(f"expected a text, found {_kind_of(value)}")
    return value


def integer(value: object) -> int:
    """Return `value`, an integer."""
    if type(value) is not int:  # bool is an int to isinstance
        raise DamagedError(f"expected a whole number, found {_kind_of(value)}")
    return value


def blob(value: object) -> bytes:
    """Return the bytes that `value` holds in base64."""
    try:
        return b64decode(text(value), validate=True)
    except ValueError as damage:
        raise DamagedError(f"expected base64: {damage}") from None


def optional(read: Callable[[object], _T], value: object) -> _T | None:
    """Return what `read` makes of `value`, or None for null."""
    return None if value is None else read(value)


def _kind_of(value: object) -> str:
    return type(value).__name__
