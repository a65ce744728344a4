"""Complaints about a pipeline file, each a mistake with remedy and key, and the exception that takes them through pydantic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from penstock.support.secret import is_from_environment, redact

KeyPath: TypeAlias = tuple[str | int, ...]

KIND = "penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One mistake. `at` is the key path from the validator's place to the value; `message` completes "<key> …"."""

    message: str
    remedy: str
    at: KeyPath = ()

    def below(self, path: KeyPath) -> "Complaint":
        """Return the same complaint with `path` in front of its key path."""
        return Complaint(message=self.message, remedy=self.remedy, at=path + self.at)


def complaints_error(complaints: Sequence[Complaint]) -> PydanticCustomError:
    """Return the exception that carries `complaints` (at least one) through pydantic."""
    return PydanticCustomError(KIND, "{message}", {"message": complaints[0].message, "complaints": tuple(complaints)})


def complaint_error(message: str, *, remedy: str, at: KeyPath = ()) -> PydanticCustomError:
    """Return the exception for a single complaint."""
    return complaints_error([Complaint(message=message, remedy=remedy, at=at)])


def dotted(path: KeyPath) -> str:
    """Return a key path as people write it: `sinks.lake.accounts`, `sinks.lake.partition_by[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


_LONGEST_SHOWN = 60


def described(value: object) -> str:
    """Return what `value` is: `the text 'abc'`, `the number 5`, `a list`. Never shows a secret."""
    if isinstance(value, str):
        if is_from_environment(value):
            return "a hidden text"
        text = redact(value)
        return f"the text {text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + '…'!r}"
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


_EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
}
_REMEDIES: Final[Mapping[str, str]] = {
    "text": "Put the value in quotes if it is meant as text.",
    "a list": "Write it as [a, b] or as lines that start with a hyphen.",
    "a mapping": "Write it as {key: value}, or as key: value lines, indented below the key.",
}
_FOLLOWS_ANOTHER = frozenset({"default_factory_not_called"})


def complaints(error: ValidationError, values: object) -> list[Complaint]:
    """Return what is wrong with `values`, in the order of the file. Never empty."""
    found: list[Complaint] = []
    for detail in error.errors(include_url=False):
        if detail["type"] in _FOLLOWS_ANOTHER or _counts_wrong_items(detail):
            continue
        path = key_path(detail["loc"], values, missing=detail["type"] == "missing")
        own = detail.get("ctx", {}).get("complaints") if detail["type"] == KIND else None
        found.extend(complaint.below(path) for complaint in own or [_foreign(detail)])
    return found


def sentence(complaint: Complaint) -> str:
    """Return the complaint with its key in front, without a full stop."""
    return f"{dotted(complaint.at)} {complaint.message}" if complaint.at else complaint.message


def key_path(location: Sequence[str | int], values: object, *, missing: bool = False) -> KeyPath:
    """Return `location` without pydantic's own steps (the tags of unions), which lead nowhere in `values`.

    `missing` says that the last step is a key that should be there.
    """
    path: list[str | int] = []
    here: Any = values
    for index, step in enumerate(location):
        absent = missing and index == len(location) - 1
        if isinstance(here, Mapping) and (step in here or absent):
            here = here.get(step)
        elif isinstance(here, Sequence) and not isinstance(here, str) and isinstance(step, int) and step < len(here):
            here = here[step]
        else:
            continue
        path.append(step)
    return tuple(path)


def _counts_wrong_items(detail: Mapping[str, Any]) -> bool:
    """Return whether a list is called too short only because items of it are wrong, each of which has a complaint."""
    return bool(detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"])


def _too_short(detail: Mapping[str, Any]) -> Complaint:
    """Return the complaint without the value: a short secret is one, too."""
    least, length = detail["ctx"]["min_length"], len(detail["input"])
    if not length:
        return Complaint(message="is empty", remedy="Give it a value.")
    return Complaint(message=f"should have {least} characters or more, found {length}", remedy="Give it a longer value.")


def _remedy(expected: str, value: object) -> str:
    """Return how to write what is `expected` in the place of `value`, which quotes would not make a text of."""
    if value is None:
        return "Give it a value, or take the key out."
    if expected == "text" and isinstance(value, Mapping | list | tuple):
        return "Write one text behind the key."
    return _REMEDIES.get(expected, f"Write {expected} without quotes.")


def _foreign(detail: Mapping[str, Any]) -> Complaint:
    kind = detail["type"]
    found = described(detail["input"])
    if kind == "missing":
        return Complaint(message="is missing", remedy=f"Add the key {detail['loc'][-1]}.")
    if kind in {"literal_error", "enum"}:
        expected = detail["ctx"]["expected"].replace("'", "").replace("True", "true")
        remedy = f"Use one of {expected}." if " " in expected else f"Write {expected}, or leave the key out."
        return Complaint(message=f"should be {expected}, found {found}", remedy=remedy)
    if kind in {"too_short", "string_too_short"}:
        return _too_short(detail)
    expected = _EXPECTED.get(kind, "")
    if expected:
        return Complaint(message=f"should be {expected}, found {found}", remedy=_remedy(expected, detail["input"]))
    message = detail["msg"].replace("Input should", "should")
    return Complaint(message=f"{message[0].lower()}{message[1:]}, found {found}", remedy="Correct the value.")
