"""How the fields of a durable value stand in JSON, written and read by one description.

Readers are exact: any other type is damage, raised as DamagedError and never converted.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from penstock.core.model import Json

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Enum)


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


def flag(value: object) -> bool:
    """Return `value`, true or false."""
    if type(value) is not bool:
        raise DamagedError(f"expected true or false, found {_kind_of(value)}")
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


class Field(Generic[_T]):
    """One field: `write` returns the JSON of a value, and `read` the value again or raises DamagedError."""

    def __init__(self, write: Callable[[Any], Json], read: Callable[[Any], _T]) -> None:
        self.write, self.read = write, read

    @property
    def optional(self) -> "Field[_T | None]":
        """The same field, with null for None."""
        return Field(lambda value: None if value is None else self.write(value), partial(optional, self.read))

    @property
    def listed(self) -> "Field[tuple[_T, ...]]":
        """A list of such fields."""
        return Field(lambda values: [self.write(value) for value in values], lambda found: tuple(map(self.read, items(found))))

    @property
    def by_name(self) -> "Field[dict[str, _T]]":
        """An object of such fields under any names."""
        return Field(
            lambda values: {name: self.write(value) for name, value in values.items()},
            lambda found: {name: self.read(value) for name, value in mapping(found).items()},
        )


TEXT, INTEGER, OBJECT = Field(str, text), Field(int, integer), Field(dict, mapping)
FLAG = Field(bool, flag)
BLOB = Field(lambda data: b64encode(data).decode("ascii"), blob)


def choice(kind: type[_E], what: str) -> Field[_E]:
    """Return the field of an enum's value; `what` names the enum in DamagedError."""

    def read(value: object) -> _E:
        name = text(value)
        try:
            return kind(name)
        except ValueError:
            raise DamagedError(f"expected {what}, found {name[:40]!r}") from None

    return Field(lambda value: value.value, read)


class Record(Field[_T]):
    """A JSON object with exactly `fields`: attributes of a value by name, from which `make` builds the value again.

    `parts` are attributes that are records themselves, but whose fields stand directly in this object. `kind`, if given, is one
    more field: it distinguishes the record from others in the same place.
    """

    def __init__(
        self,
        make: Callable[..., _T],
        fields: "Mapping[str, Field[Any]]",
        *,
        parts: "Mapping[str, Record[Any]]" = MappingProxyType({}),
        kind: str | None = None,
    ) -> None:
        super().__init__(self.fields_of, lambda value: self._made(record(value, self._names)))
        self._make, self._fields, self._parts, self.kind = make, fields, parts, kind
        self._tag: dict[str, Json] = {} if kind is None else {"kind": kind}
        self._names: frozenset[str] = frozenset({*self._tag, *fields}).union(*(part._names for part in parts.values()))

    def fields_of(self, value: _T) -> dict[str, Json]:
        """Return what `write` returns, as the fields of a document."""
        written = self._tag | {name: field.write(getattr(value, name)) for name, field in self._fields.items()}
        for name, part in self._parts.items():
            written |= part.fields_of(getattr(value, name))
        return written

    def _made(self, found: Mapping[str, Any]) -> _T:
        own = {name: field.read(found[name]) for name, field in self._fields.items()}
        return self._make(**own, **{name: part._made(found) for name, part in self._parts.items()})
