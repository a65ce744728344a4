"""Types of single values: names of things and of Python objects, sizes such as `128MB`, and durations such as `10s`."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from penstock.spec.complaint import complaint_error, described

_HALVES = re.compile(r"[\ud800-\udfff]")
_NAME, _VIEW = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", r"[A-Za-z_][A-Za-z0-9_]{0,99}"
_ACCOUNT, _MODULE = r"[^\x00-\x1f\x7f]{1,200}", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_PYTHON = rf"{_MODULE}:[A-Za-z_]\w*"
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")

_SMALLEST_BYTES = 1_000
"""A smaller size is taken as a number whose unit was forgotten."""
_BYTES: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_MILLISECONDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


def _schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


def _matching(pattern: str, expected: str, example: str) -> Callable[[str], str]:
    """Return a validator that raises pydantic's custom error for a text other than `pattern`."""
    compiled = re.compile(pattern)

    def validated(value: str) -> str:
        if not compiled.fullmatch(value) or _HALVES.search(value):
            raise complaint_error(f"should be {expected}, found {described(value)}", remedy=f"Write it like {example}.")
        return value

    return validated


Name = Annotated[
    str,
    AfterValidator(_matching(_NAME, "a name of at most 100 letters, digits, hyphens, dots and underscores", "flights-eu")),
    _schema(_NAME),
]
"""Name of a pipeline or a sink."""

ViewName = Annotated[
    str,
    AfterValidator(_matching(_VIEW, "a name of at most 100 letters, digits and underscores, since SQL reads it", "late_flights")),
    _schema(_VIEW),
]
"""Name of a source, which is also a view in SQL."""

AccountKey = Annotated[
    str, AfterValidator(_matching(_ACCOUNT, "a name of 1 to 200 printable characters", "EWR")), _schema(_ACCOUNT)
]
"""Name of an account: a value of the route."""

python_name = _matching(_PYTHON, "module:object", "mypkg.jobs:clean")
PYTHON_SCHEMA = _schema(_PYTHON)
PythonName = Annotated[str, AfterValidator(python_name), PYTHON_SCHEMA]
"""A Python object as `package.module:name`."""

ModuleName = Annotated[str, AfterValidator(_matching(_MODULE, "the name of a module", "psycopg")), _schema(_MODULE)]
"""A Python module as `package.module`."""


def _parse(value: object, units: Mapping[str, int], *, expected: str, example: str) -> int:
    number = isinstance(value, int) and not isinstance(value, bool)
    found = _QUANTITY.fullmatch(str(value)) if number or isinstance(value, str) else None
    factor = units.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise complaint_error(f"should be {expected}, found {described(value)}", remedy=f"Write it like {example}.")
    return round(float(found[1]) * factor) if "." in found[1] else int(found[1]) * factor


def size_bytes(value: object) -> int:
    """Return the bytes of `128MB` (10^6), `64MiB` (2^20) or a plain number of bytes. Raises pydantic's custom error."""
    size = _parse(value, _BYTES, expected="a size with a unit", example="128MB, 64MiB or 1GB")
    if size < _SMALLEST_BYTES:
        raise complaint_error(
            f"should be a size of at least 1KB, found {described(value)}", remedy="Write it with a unit, like 128MB."
        )
    return size


def duration_ms(value: object) -> int:
    """Return the milliseconds of `10s`, `500ms`, `5 minutes`. Raises pydantic's custom error."""
    if value in {0, "0"} and not isinstance(value, bool):
        return 0
    return _parse(value, _MILLISECONDS, expected="a duration with a unit", example="10s, 500ms or 5m")


Size = Annotated[
    int,
    BeforeValidator(size_bytes),
    WithJsonSchema(
        {"x-kind": "size", "type": ["string", "integer"], "pattern": r"^\s*\d+(\.\d+)?\s*([kKmMgGtT]?[iI]?[bB])?\s*$"}
    ),
]
"""A size in bytes, written with a unit."""

Duration = Annotated[
    int,
    BeforeValidator(duration_ms),
    WithJsonSchema({"x-kind": "duration", "type": ["string", "integer"], "pattern": r"^\s*\d+(\.\d+)?\s*[a-zA-Z]*\s*$"}),
]
"""A duration in milliseconds, written with a unit."""

WideningChanges = Annotated[
    Literal["fail", "add", "widen"],
    Field(
        description="What a start does if the rows have columns that the table lacks: `fail`, or `add` them to the table, where "
        "older rows are NULL in them; `widen` also gives columns of the table wider types."
    ),
]


def _not_widening(value: object) -> object:
    if value == "widen":
        raise complaint_error(
            "is widen, which only sinks of type sqlite, duckdb, postgres and mysql have: elsewhere no column's type is changed "
            "together with the sums by which verify counts rows",
            remedy="Use add, and cast the column in the transform to what it was.",
        )
    return value


SchemaChanges = Annotated[
    Literal["fail", "add"],
    BeforeValidator(_not_widening),
    Field(
        description="What a start does if the rows have columns that the table lacks: `fail`, or `add` them to the table, where "
        "older rows are NULL in them."
    ),
]
