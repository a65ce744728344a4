"""Loads settings from a pipeline file, with errors that name file, line and key."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from penstock.errors import Usage
from penstock.spec.complaint import Complaint, KeyPath, complaints, dotted, key_path, sentence
from penstock.spec.document import Document, parse, scalar
from penstock.spec.misplaced import with_place
from penstock.spec.pipeline import PipelineSettings
from penstock.support.secret import Interpolated, Secret, remember_given

_RETYPED: Final[Mapping[str, type | tuple[type, ...]]] = {
    "int_type": int,
    "bool_type": bool,
    "float_type": (int, float),
    "literal_error": bool,
}


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> PipelineSettings:
    """Return the settings of the pipeline file at `path`, with each `key.path=value` of `overrides` in its place.

    Variables come from this process's environment. Relative places become absolute, relative to the file. Raises Usage with every
    mistake that was found, each with file, line and key.
    """
    file = os.fspath(path)
    document = override(parse(_read(file), file=file), overrides)
    content = interpolate(document, os.environ).content
    context = {"base": Path(file).absolute().parent}
    try:
        try:
            return PipelineSettings.model_validate(content, context=context)
        except ValidationError as error:
            if not _retype(content, error):
                raise
        return PipelineSettings.model_validate(content, context=context)
    except ValidationError as error:
        found = [with_place(complaint, content) for complaint in complaints(error, content)]
        raise _usage(document, found, overrides) from None


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Usage(
            f"There is no pipeline file {file}.", remedy="Check the path, or make a project with `penstock init`."
        ) from None
    except IsADirectoryError:
        raise Usage(
            f"{file} is a directory, not a pipeline file.", remedy=f"Name the file in it: {file.rstrip('/')}/….yaml."
        ) from None
    except UnicodeDecodeError as error:
        raise Usage(f"{file} is not UTF-8 text (byte {error.start}).", remedy="Save it as UTF-8.") from None
    except OSError as error:
        raise Usage(f"{file} cannot be read: {error.strerror}.", remedy="Check its permissions.") from None


def _retype(content: dict[str, Any], error: ValidationError) -> bool:
    """Let `${N}` stand for a number or a truth value where one is expected. Return whether anything was changed."""
    changed = False
    for detail in error.errors(include_url=False):
        value = detail["input"]
        if isinstance(value, Interpolated) and detail["type"] in _RETYPED:
            with suppress(Usage):  # a text that is not YAML, as a password can be, stays a text
                typed = scalar(str(value))
                if isinstance(typed, _RETYPED[detail["type"]]):
                    *above, key = key_path(detail["loc"], content)
                    place: Any = content
                    for step in above:
                        place = place[step]
                    place[key] = typed
                    changed = True
    return changed


def _usage(document: Document, found: Sequence[Complaint], overrides: Sequence[str]) -> Usage:
    located, remedies = [], []
    for complaint in found:
        adding = _adding(complaint.at, document, overrides)
        given = adding or overridden(complaint.at, overrides) or _making(complaint.at, document, overrides)
        where = f"--set {given.partition('=')[0]}" if given else f"{document.file}:{document.line(complaint.at)}"
        located.append(f"{where}: {sentence(complaint)}.")
        remedies.append(f"{_names_there(complaint.at, document)}{complaint.remedy}" if adding else complaint.remedy)
    if len(found) == 1:
        return Usage(located[0], remedy=remedies[0])
    lines = [f"{place} {remedy}" for place, remedy in zip(located, remedies, strict=True)]
    return Usage(
        f"{document.file} has {len(found)} mistakes:\n" + "\n".join(f"  {line}" for line in lines),
        remedy="Correct them and run `penstock check` again.",
    )


def _adding(path: KeyPath, document: Document, overrides: Sequence[str]) -> str | None:
    """Return the override that added the source or sink of `path`, None if the file has it."""
    named = path[:2]
    if len(named) < 2 or named[0] not in {"sources", "sinks"} or named in document.lines:
        return None
    return next((text for text in overrides if tuple(_parse(text)[0][:2]) == named), None)


def _making(path: KeyPath, document: Document, overrides: Sequence[str]) -> str | None:
    """Return the override that made the mapping at `path` by a key below it, None if the file has it."""
    if not path or path in document.lines:
        return None
    return next((text for text in overrides if tuple(_parse(text)[0][: len(path)]) == path), None)


def _names_there(path: KeyPath, document: Document) -> str:
    """Return a sentence on the sources or sinks of the file, where an override named another one."""
    there = [str(at[1]) for at in document.lines if len(at) == 2 and at[0] == path[0]]
    return f"{document.file} has {path[0]} {', '.join(there)}: if one of them is meant, correct its name. " if there else ""


_FLAT = frozenset({"options", "conf"})
"""Mappings whose keys contain dots: the rest of the path is one key."""


def override(document: Document, overrides: Sequence[str]) -> Document:
    """Return `document` with each `key.path=value` in place, values read as YAML. Raises Usage, which shows no value."""
    content = document.content
    for text in overrides:
        path, value = _parse(text)
        content = _put(content, path, value, text.partition("=")[0].strip())
    return Document(document.file, content, document.lines)


def _parse(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    steps = key.strip().split(".")
    if not equals or not all(steps):
        found = f"the key {key.strip()!r}" if equals else "a text without ="
        raise Usage(f"--set should be key=value, found {found}.", remedy="Write it like --set trigger.processing_time=10s.")
    flat = next((index + 1 for index, step in enumerate(steps) if step in _FLAT and index + 1 < len(steps)), len(steps))
    return [*steps[:flat], *([".".join(steps[flat:])] if steps[flat:] else [])], _value(key.strip(), value)


def _value(key: str, text: str) -> Any:
    try:
        return scalar(text)
    except Usage as mistake:
        raise Usage(f"--set {key}: {mistake.message[:1].lower()}{mistake.message[1:]}", remedy=mistake.remedy) from None


def _put(here: Any, path: Sequence[str], value: Any, key: str) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(here, list):
        index = int(step) if step.isdecimal() else -1
        if not 0 <= index < len(here):
            raise Usage(f"--set {key}: there is no item {step} in a list of {len(here)}.", remedy=f"Use 0 to {len(here) - 1}.")
        return [_put(item, rest, value, key) if at == index else item for at, item in enumerate(here)]
    if here is not None and not isinstance(here, dict):
        raise Usage(
            f"--set {key}: {key.rpartition(f'.{step}')[0]} is a single value, nothing below it is called {step}.",
            remedy="Correct the key path.",
        )
    content = dict(here or {})
    return {**content, step: _put(content.get(step), rest, value, key)}


def overridden(path: KeyPath, overrides: Sequence[str]) -> str | None:
    """Return the override that gave the value at `path`, None if none did."""
    for text in reversed(overrides):
        steps = tuple(_parse(text)[0])
        if tuple(str(step) for step in path[: len(steps)]) == steps:
            return text
    return None


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
            shown = f"${{{malformed}}}" if closed else "${ without }"
            raise Usage(
                f"{where} holds {shown}, which is no reference to an environment variable.",
                remedy="Write ${NAME} or ${NAME:-default}; write $${ for a plain ${.",
            )
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
    shown = _REFERENCE.sub(lambda found: found[0] if found[2] and environ.get(found[2]) else replacement(found), text)
    remember_given(result, given, shown=shown)
    return Secret(result)
