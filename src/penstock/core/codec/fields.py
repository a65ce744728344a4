"""Exact readers for the fields of a durable value: another type than the expected one is damage, never converted."""

from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class DamagedError(Exception):
    """What does not fit, told without the place, which only the caller knows."""


def require_fields(fields: dict[str, Any], names: frozenset[str]) -> None:
    """Raise unless `fields` has exactly these names: a missing and a foreign field are damage alike."""
    if fields.keys() != names:
        different = ", ".join(sorted(fields.keys() ^ names))
        raise DamagedError(f"expected the fields {', '.join(sorted(names))}, found others: {different}")


def record(value: object, names: frozenset[str]) -> dict[str, Any]:
    """An object with exactly these fields."""
    fields = mapping(value)
    require_fields(fields, names)
    return fields


def mapping(value: object) -> dict[str, Any]:
    """An object with any fields."""
    if type(value) is not dict:
        raise DamagedError(f"expected an object, found {_kind_of(value)}")
    return value


def items(value: object) -> list[Any]:
    """A list."""
    if type(value) is not list:
        raise DamagedError(f"expected a list, found {_kind_of(value)}")
    return value


def text(value: object) -> str:
    """A text."""
    if type(value) is not str:
        raise DamagedError(f"expected a text, found {_kind_of(value)}")
    return value


def integer(value: object) -> int:
    """A whole number."""
    if type(value) is not int:  # bool is an int to isinstance
        raise DamagedError(f"expected a whole number, found {_kind_of(value)}")
    return value


def blob(value: object) -> bytes:
    """Bytes in base64."""
    try:
        return b64decode(text(value), validate=True)
    except ValueError as damage:
        raise DamagedError(f"expected base64: {damage}") from None


def optional(read: Callable[[object], _T], value: object) -> _T | None:
    """What `read` reads, or null."""
    return None if value is None else read(value)


def _kind_of(value: object) -> str:
    return type(value).__name__
