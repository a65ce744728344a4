"""The error that ended the newest run, and when a newer run fenced one, noted in the pipeline's home."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.errors import Fenced, PenstockError
from penstock.observe.note import read_note, write_note
from penstock.support.secret import scrub

_KIND, _FENCE = "last_error", "last_fence"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastError:
    """The error that ended a run, and the process that it was raised in. `lacks`: as in PenstockError.

    `of_start`: the run did not begin, so that another query of the process, such as a notebook's, may go on.
    """

    at_ms: int
    owner: str
    kind: str
    message: str
    remedy: str
    exit_code: int
    lacks: str = ""
    of_start: bool = False

    def ended(self, owner: str | None, *, after_ms: int) -> bool:
        """Return whether the error ended the query of the process `owner`, whose newest entry in the ledger is of `after_ms`."""
        return not self.of_start and self.owner == owner and self.at_ms >= after_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LastFence:
    """When a run found out that a newer one has the pipeline, and the process that it ran in."""

    at_ms: int
    owner: str


@contextmanager
def noting_error(home: str, *, of_start: bool = False) -> Iterator[None]:
    """Note an error of Penstock's that leaves the block; of a fenced run only when that was: the newer one may do well."""
    try:
        yield
    except PenstockError as error:
        note_error(home, error, of_start=of_start)
        raise


def note_error(home: str, error: PenstockError, *, of_start: bool = False) -> None:
    """Write `error` into `home`, in place of the one before, unless `home` is not there yet or cannot be written.

    Fenced is no error of the pipeline's: only the time and the process are noted, beside the last error.
    """
    if isinstance(error, Fenced):
        write_note(home, _FENCE, LastFence(at_ms=time.time_ns() // 1_000_000, owner=_owner()))
        return
    noted = LastError(
        at_ms=time.time_ns() // 1_000_000,
        owner=_owner(),
        kind=type(error).__name__,
        message=scrub(error.message),
        remedy=scrub(error.remedy),
        exit_code=error.exit_code,
        lacks=error.lacks,
        of_start=of_start,
    )
    write_note(home, _KIND, noted)


def last_error(home: str) -> LastError | None:
    """Return what the newest run that failed noted in `home`; None if there is nothing that this version can read."""
    return read_note(home, _KIND, LastError)


def last_fence(home: str) -> LastFence | None:
    """Return what the newest run that was fenced noted in `home`; None if there is nothing that this version can read."""
    return read_note(home, _FENCE, LastFence)


def _owner() -> str:
    return f"{socket.gethostname()} process {os.getpid()}"
