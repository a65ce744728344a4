"""Replaces `${VAR}` and `${VAR:-default}` in the texts of a pipeline file. `$${` stands for a plain `${`."""

import re
from collections.abc import Mapping
from typing import Any

from penstock.errors import Usage
from penstock.spec.complaint import KeyPath, dotted
from penstock.spec.document import Document
from penstock.support.secret import Interpolated, Secret, remember, remember_given

_REFERENCE = re.compile(r"\$(\$\{)|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([^}]*)(\}?))")


def interpolate(document: Document, environ: Mapping[str, str]) -> Document:
    """Return `document` with every reference replaced from `environ`. Raises Usage that names the variable and the line."""

    def walk(value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, (*path, index)) for index, item in enumerate(value)]
        return _replaced(value, path, document, environ) if isinstance(value, str) and "${" in value else value

    return Document(document.file, walk(document.content, ()), document.lines)


def _replaced(text: str, path: KeyPath, document: Document, environ: Mapping[str, str]) -> str:
    where = f"{document.file}:{document.line(path)}: {dotted(path)}"
    given: list[str] = []

    def replacement(found: re.Match[str]) -> str:
        escaped, name, default, malformed, closed = found.groups()
        if escaped:
            return "${"
        if name is None:
            raise _malformed(where, malformed, closed=bool(closed))
        value = environ.get(name)
        if default is not None and not value:
            return str(default)
        if value is None:
            raise Usage(
                f"{where} needs the environment variable {name}, which is not set.",
                remedy=f"Set {name}, or write ${{{name}:-default}}.",
            )
        given.append(value)
        return value

    result = _REFERENCE.sub(replacement, text)
    if not given:
        return Interpolated(result)
    remember_given(result, given)
    if path[-1:] == ("sql",):  # errors quote parts of the SQL
        for value in given:
            remember(Secret(value))
    return Secret(result)


def _malformed(where: str, inside: str, *, closed: bool) -> Usage:
    shown = f"${{{inside}}}" if closed else "${ without }"
    return Usage(
        f"{where} holds {shown}, which is no reference to an environment variable.",
        remedy="Write ${NAME} or ${NAME:-default}; write $${ for a plain ${.",
    )
