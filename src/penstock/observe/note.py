"""Small JSON files in a pipeline's home, for `penstock status`: the newest one of a kind replaces the one before.

Nothing relies on them: they are written if that is possible, and read if they are there.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from penstock.core.model import new_nonce
from penstock.support.private_files import open_private

_VERSION = 1
T = TypeVar("T")


def write_note(home: str, kind: str, value: Any) -> None:
    """Write the dataclass `value` into `home`, unless `home` is not there yet or cannot be written."""
    noted = {"format": f"penstock.{kind}", "version": _VERSION, **asdict(value)}
    fresh = Path(home) / f".{_file(kind)}-{new_nonce()}"
    with suppress(OSError):
        with open_private(fresh, "xb") as file:
            file.write(json.dumps(noted).encode())
        fresh.replace(fresh.with_name(_file(kind)))


def read_note(home: str, kind: str, of: Callable[..., T]) -> T | None:
    """Return what was written last; None if there is nothing that this version can read."""
    try:
        noted = json.loads((Path(home) / _file(kind)).read_text())
        if noted.pop("format") != f"penstock.{kind}" or noted.pop("version") != _VERSION:
            return None
        return of(**noted)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _file(kind: str) -> str:
    return f"{kind.replace('_', '-')}.json"
