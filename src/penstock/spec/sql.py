"""SQL in a pipeline file: the types of all fields that hold it, and what the environment gave to them, which is secret.

Spark shows SQL in plans, and errors of Spark and of databases quote it. A field of one of these types keeps its text as a
`SecretSQL` if a `${VAR}` is in it: no message shows the value, and `secrets_in_sql` finds it for Spark's redaction.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from penstock.spec.settings import Settings
from penstock.support.secret import Secret, SecretSQL, remember, values_in

_LITERAL = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _secret(text: str) -> str:
    """Return `text`; where values of the environment are in it, as a secret, whose secret parts `scrub` masks from now on."""
    if not values_in(text):
        return text
    for part in _secret_parts(text):
        remember(Secret(part))
    return SecretSQL(text)


def _secret_parts(text: str) -> Iterator[str]:
    """Yield each value of the environment in `text`, and each literal in such a value, as written and as Spark prints it."""
    for value in values_in(text):
        for part in (value, *(found[1] or found[2] or "" for found in _LITERAL.finditer(value))):
            yield from (part, _ESCAPED.sub(r"\1", part))


OF_SQL = AfterValidator(_secret)
"""Marks a type as one of SQL."""

SQL = Annotated[str, Field(min_length=1), OF_SQL]
"""A query, statements or an expression, in the SQL of Spark or of a database."""

SQLType = Annotated[str, OF_SQL]
"""The SQL type of a column."""


def secrets_in_sql(settings: Settings) -> frozenset[str]:
    """Return all that is secret in the SQL of `settings` and of those inside them."""
    return frozenset(part for text in _texts(settings) for part in _secret_parts(text))


def _texts(value: Any) -> Iterator[SecretSQL]:
    if isinstance(value, SecretSQL):
        yield value
    elif isinstance(value, Settings):
        yield from (text for _, item in value for text in _texts(item))
    elif isinstance(value, Mapping):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, tuple):
        yield from (text for item in value for text in _texts(item))
