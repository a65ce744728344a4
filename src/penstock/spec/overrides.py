"""Applies `--set a.b.c=value`, which replaces single values of a pipeline file from the command line."""

from collections.abc import Sequence
from typing import Any

from penstock.errors import Usage
from penstock.spec.complaint import KeyPath
from penstock.spec.document import Document, scalar

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
    return [*steps[:flat], *([".".join(steps[flat:])] if steps[flat:] else [])], scalar(value)


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
