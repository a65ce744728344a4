"""Describes values of a pipeline file in messages."""

from collections.abc import Mapping, Sequence

from penstock.support.secret import is_from_environment, redact

_LONGEST_SHOWN = 60


def described(value: object) -> str:
    """Return what `value` is: `the text 'abc'`, `the number 5`, `a list`. Never shows a secret."""
    if isinstance(value, str):
        if is_from_environment(value):
            return "a hidden text"
        return f"the text {_shortened(redact(value))!r}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    return _structure(value)


def _structure(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, Sequence):
        return "a list" if value else "an empty list"
    return f"a {type(value).__name__}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
