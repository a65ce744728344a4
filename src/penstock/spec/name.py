"""Types of the names that users give to pipelines, sinks, sources and accounts, and of names of Python objects."""

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from penstock.spec.complaint import complaint_error, described

_PYTHON = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"


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


_HALVES = re.compile(r"[\ud800-\udfff]")
_NAME, _VIEW = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", r"[A-Za-z_][A-Za-z0-9_]{0,99}"
_ACCOUNT, _MODULE = r"[^\x00-\x1f\x7f]{1,200}", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"

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
