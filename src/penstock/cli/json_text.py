"""Serialises any frozen value as JSON, with the names of its fields and properties as keys."""

import json
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from penstock.core.model import DIGEST_MODULUS
from penstock.support.printable import printable_json


def plain(value: object) -> Any:
    """Return `value` as JSON values. Digests become hexadecimal text, since they exceed the integers of many JSON readers."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    return _structure(value)


def _structure(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        derived = [name for name, member in vars(type(value)).items() if isinstance(member, property) and name[0] != "_"]
        found = {name: getattr(value, name) for name in (*(field.name for field in fields(value)), *derived)}
        return {
            name: hexadecimal(content) if name.startswith("digest") and isinstance(content, int) else plain(content)
            for name, content in found.items()
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def line(value: object) -> str:
    """Return `value` as one line of JSON."""
    return printable_json(json.dumps(plain(value), ensure_ascii=False, separators=(", ", ": ")))


def hexadecimal(digest: int) -> str:
    """Return a content digest as 16 hexadecimal digits."""
    return f"{digest % DIGEST_MODULUS:016x}"
