"""Penstock errors for SQLite's, matched by text: Python 3.10 does not expose SQLite's error codes."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import Failed, LedgerMismatch, PenstockError, Retryable
from penstock.support.filesystem_errors import FULL, file_problem

_KINDS: tuple[tuple[str, type[PenstockError], str], ...] = (
    ("locked", Retryable, "Another program holds the file: try again, or find out which one does."),
    ("busy", Retryable, "Another program holds the file: try again, or find out which one does."),
    ("no such table: penstock_ledger_proof", Retryable, "Another driver starts at the same time: start just one."),
    ("not a database", LedgerMismatch, "Name another file, or restore this one from a backup."),
    ("malformed", LedgerMismatch, "Restore the file from a backup."),
)
_THEN = ", then start again: nothing that was decided is lost."
_OTHER = f"Mend the disk or the file{_THEN}"


def translate_error(error: sqlite3.Error, location: str) -> PenstockError:
    """Return the error to raise for `error`, which happened before anything was committed."""
    text = str(error)
    for part, kind, remedy in _KINDS:
        if part in text:
            return kind(f"The ledger {location} cannot be used: {text}.", remedy=remedy)
    seen = file_problem(location) or (FULL if "full" in text else None)
    if seen is None:
        return Failed(f"The ledger {location} cannot be used: {text}.", remedy=_OTHER)
    return Failed(f"The ledger {location} cannot be used: {seen.reason} ({text}).", remedy=f"{seen.advice}{_THEN}")


def require_not_emptied(path: Path) -> None:
    """Raise LedgerMismatch for an empty file with a write-ahead log: SQLite fills the file before it begins a log.

    SQLite itself would find an empty database, or report that it is locked.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        size, logged = path.stat().st_size, log.stat().st_size
    except OSError:  # opening the file will report what is wrong with it
        return
    if size == 0 < logged:
        raise LedgerMismatch(
            f"The ledger {path} was emptied: it has 0 bytes, and {log.name} beside it has {logged}.",
            remedy=f"Remove {log.name} and {path.name}-shm, and restore {path.name} from a backup.",
        )


@contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Translate SQLite's errors; only around statements that commit nothing."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate_error(error, location) from error
