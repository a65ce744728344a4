"""The error that ended the newest run, noted in the pipeline's home."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.errors import Fenced, PenstockError
from penstock.observe.note import read_note, write_note
from penstock.support.secret import scrub

_KIND = "last_error"


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
    write_note(home, _KIND, noted)


def last_error(home: str) -> LastError | None:
    """Return what the newest run that failed noted in `home`; None if there is nothing that this version can read."""
    return read_note(home, _KIND, LastError)
