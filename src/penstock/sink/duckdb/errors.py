"""DuckDB's errors, translated to Penstock's."""

import re

import duckdb

from penstock.errors import Failed, PenstockError, Retryable
from penstock.support.filesystem_errors import FULL, PathProblem, file_problem

_OPEN_ELSEWHERE = ("Could not set lock on file", "Unique file handle conflict")
_CONFLICT = ("conflict", "constraint", "other transaction", "different transaction")
_QUOTED = re.compile(r'"[^"]*"')
"""Names and values, which may contain any words."""
_VALUES = (re.compile(r'(\bkey) ".*"', re.DOTALL | re.IGNORECASE), re.compile(r"(\bconvert string) '.*'", re.DOTALL))
"""Values of rows, which no message shows; each with the words before it."""
_DAMAGED = ("not a valid DuckDB database file", "Corrupt", "checksum")


def translate_error(cause: "duckdb.Error", path: str, kind: type[Failed]) -> PenstockError:
    """Return the error to raise for one of DuckDB before COMMIT: nothing was written."""
    reason = _first_line(cause)
    if is_open_elsewhere(cause) or isinstance(cause, duckdb.ConnectionException):
        return Retryable(
            f"The database {path} is open elsewhere: {reason}.",
            remedy="Close it there: DuckDB lets one process in at a time, and one way of opening in a process. Then try again.",
        )
    if isinstance(cause, duckdb.ConstraintException):
        return kind(
            f"The table in {path} refused a row: {reason}.",
            remedy="Drop the constraint or correct the table's rows, then start again: what was decided is published then.",
        )
    if any(sign in reason for sign in _DAMAGED):
        return kind(
            f"The file {path} cannot be used as a database: {reason}.",
            remedy="Restore it from a backup and start again: what was decided is published then.",
        )
    seen = diagnose_file(cause, path)
    return kind(
        f"The database {path} cannot be used: {seen.reason}.",
        remedy=f"{seen.advice} and start again: what was decided is published then.",
    )


def is_open_elsewhere(cause: BaseException) -> bool:
    """Return whether another process, or another thread at this very moment, keeps the file from being opened."""
    return isinstance(cause, duckdb.Error) and any(sign in str(cause) for sign in _OPEN_ELSEWHERE)


def is_conflict(cause: BaseException) -> bool:
    """Return whether a transaction lost to another one. DuckDB raises the same class where a COMMIT could not be written."""
    reason = _QUOTED.sub("", str(cause)).lower()
    return isinstance(cause, duckdb.TransactionException) and any(sign in reason for sign in _CONFLICT)


def diagnose_file(cause: "duckdb.Error", path: str) -> PathProblem:
    """Return what `cause` and a look at the file show together."""
    reason = _first_line(cause)
    seen = file_problem(path) or (FULL if "No space left" in reason else None)
    if seen is None:
        return PathProblem(reason=reason, advice="Mend that")
    return PathProblem(reason=f"{seen.reason} ({reason})", advice=seen.advice)


def disk_error(point: str) -> "duckdb.Error":
    """Return the error that DuckDB would raise at a fault point if the disk failed."""
    return duckdb.IOException(f"IO Error: Could not write to file ({point})")


def _first_line(cause: "duckdb.Error") -> str:
    reason = str(cause)
    for values in _VALUES:
        reason = values.sub(r"\1", reason)
    return reason.partition("\n")[0].rstrip(".")
