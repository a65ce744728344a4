"""Types of the names that users give to pipelines, sinks, sources and accounts, and of names of Python objects."""

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from penstock.spec.complaint import complaint_error
from penstock.spec.describe import described

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_ACCOUNT = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_HALVES = re.compile(r"[\ud800-\udfff]")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PYTHON = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _misnamed(value: str, expected: str, example: str) -> PydanticCustomError:
    return complaint_error(f"should be {expected}, found {described(value)}", remedy=f"Write it like {example}.")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise _misnamed(value, "a name of at most 100 letters, digits, hyphens, dots and underscores", "flights-eu")
    return value


def _view(value: str) -> str:
    if not _VIEW.fullmatch(value):
        raise _misnamed(value, "a name of at most 100 letters, digits and underscores, since SQL reads it", "late_flights")
    return value


def _account(value: str) -> str:
    if not _ACCOUNT.fullmatch(value) or _HALVES.search(value):
        raise _misnamed(value, "a name of 1 to 200 printable characters", "EWR")
    return value


def python_name(value: str) -> str:
    """Return `value` if it names a Python object as `package.module:name`. Raises pydantic's custom error."""
    if not _PYTHON.fullmatch(value):
        raise _misnamed(value, "module:object", "mypkg.jobs:clean")
    return value


def _module(value: str) -> str:
    if not _MODULE.fullmatch(value):
        raise _misnamed(value, "the name of a module", "psycopg")
    return value


def _schema(pattern: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern}$"})


Name = Annotated[str, AfterValidator(_name), _schema(_NAME)]
"""Name of a pipeline or a sink."""

ViewName = Annotated[str, AfterValidator(_view), _schema(_VIEW)]
"""Name of a source, which is also a view in SQL."""

AccountKey = Annotated[str, AfterValidator(_account), _schema(_ACCOUNT)]
"""Name of an account: a value of the route."""

PYTHON_SCHEMA = _schema(_PYTHON)
PythonName = Annotated[str, AfterValidator(python_name), PYTHON_SCHEMA]
"""A Python object as `package.module:name`."""

ModuleName = Annotated[str, AfterValidator(_module), _schema(_MODULE)]
"""A Python module as `package.module`."""
