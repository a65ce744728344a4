"""The error that ended the newest run: a small file in the pipeline's home, for `penstock status`.

Nothing relies on it: it is written if that is possible, and read if it is there.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.core.model import new_nonce
from penstock.errors import Fenced, PenstockError
from penstock.support.private_files import open_private
from penstock.support.secret import scrub

_NAME = "last-error.json"
_HEAD = {"format": "penstock.last_error", "version": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastError:
    """The error that ended a run, and the process that it was raised in."""

    at_ms: int
    owner: str
    kind: str
    message: str
    remedy: str
    exit_code: int


@contextmanager
def noting_error(home: str) -> Iterator[None]:
    """Note an error of Penstock's that leaves the block. A fenced run notes nothing: the newer one may do well."""
    try:
        yield
    except Fenced:
        raise
    except PenstockError as error:
        note_error(home, error)
        raise


def note_error(home: str, error: PenstockError) -> None:
    """Write `error` into `home`, in place of the one before, unless `home` is not there yet or cannot be written."""
    noted = LastError(
        at_ms=time.time_ns() // 1_000_000,
        owner=f"{socket.gethostname()} process {os.getpid()}",
        kind=type(error).__name__,
        message=scrub(error.message),
        remedy=scrub(error.remedy),
        exit_code=error.exit_code,
    )
    fresh = Path(home) / f".{_NAME}-{new_nonce()}"
    with suppress(OSError):
        with open_private(fresh, "xb") as file:
            file.write(json.dumps({**_HEAD, **asdict(noted)}).encode())
        fresh.replace(fresh.with_name(_NAME))


def last_error(home: str) -> LastError | None:
    """Return what the newest run that failed noted in `home`; None if there is nothing that this version can read."""
    try:
        noted = json.loads((Path(home) / _NAME).read_text())
        if noted.pop("format") != _HEAD["format"] or noted.pop("version") != _HEAD["version"]:
            return None
        return LastError(**noted)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
