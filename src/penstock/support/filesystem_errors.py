"""Plain-word reasons why a path cannot be used, and what to do, from an OSError or from examining the path itself.

Examining serves where another program (SQLite, Spark) reports only that it failed. It explains; it decides nothing.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError

_LITTLE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PathProblem:
    """`reason` ends a sentence on what happened, `advice` begins one on what to do; neither has a full stop.

    `lacks`: as in PenstockError.
    """

    reason: str
    advice: str
    lacks: str = ""


FULL = PathProblem(reason="the disk is full", advice="Make room on it (bytes and inodes)", lacks="room")
_DENIED = PathProblem(reason="permission is denied", advice="Grant this user access")
_READ_ONLY = PathProblem(reason="the file system is read-only", advice="Mount it for writing")
_A_FILE = PathProblem(reason="a file is where a directory is expected", advice="Move that file away")
_A_DIRECTORY = PathProblem(reason="a directory is where a file is expected", advice="Name a file, or move that directory away")

_PROBLEMS: Mapping[int, PathProblem] = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: PathProblem(reason="the quota is used up", advice="Make room or raise the quota", lacks="room"),
    errno.EIO: PathProblem(reason="the disk reports an input/output error", advice="Mend or replace the disk"),
    errno.EACCES: _DENIED,
    errno.EPERM: PathProblem(reason="the operation is not permitted", advice=_DENIED.advice),
    errno.EROFS: _READ_ONLY,
    errno.ENOENT: PathProblem(reason="a directory on the way is missing", advice="Create or mount the directory"),
    errno.ENOTDIR: _A_FILE,
    errno.EEXIST: _A_FILE,  # what mkdir says
    errno.EISDIR: _A_DIRECTORY,
    errno.ENAMETOOLONG: PathProblem(reason="the name is too long for the file system", advice="Use shorter names"),
    errno.EXDEV: PathProblem(reason="it is on another file system or mount", advice="Move it to the file system of the account"),
    errno.ELOOP: PathProblem(reason="links lead in a circle", advice="Remove one of them"),
    errno.EFBIG: PathProblem(reason="the file is larger than allowed", advice="Raise the limit on file sizes"),
}


def problem_of(cause: OSError) -> PathProblem:
    """Return the problem that `cause` reports."""
    return _PROBLEMS.get(cause.errno or 0, PathProblem(reason=cause.strerror or str(cause), advice="Mend the cause"))


@contextmanager
def translate_os_errors(kind: type[PenstockError], what: str, *, then: str) -> Iterator[None]:
    """Raise an OSError as `kind`. `what` begins the message, which the reason ends; `then` ends the remedy."""
    try:
        yield
    except OSError as cause:
        problem = problem_of(cause)
        raise kind(f"{what}: {problem.reason}.", remedy=f"{problem.advice}{then}").lacking(problem.lacks) from cause


def path_problem(path: str | Path) -> PathProblem | None:
    """Return what prevents writing `path` (a directory, or a file in an existing one), None if nothing is found."""
    place = Path(path)
    here = place if place.is_dir() else place.parent
    if not here.is_dir():
        return _above(here)
    if os.statvfs(here).f_flag & os.ST_RDONLY:
        return _READ_ONLY
    if not os.access(here, os.W_OK | os.X_OK) or (place.exists() and not os.access(place, os.W_OK)):
        return _DENIED
    found = os.statvfs(here)
    is_full = found.f_bavail * found.f_frsize < _LITTLE_BYTES or (found.f_files > 0 and found.f_favail == 0)
    return FULL if is_full else None


def directory_problem(directory: str | Path) -> PathProblem | None:
    """Return what prevents writing a directory that may not exist yet. Only local paths are examined; others give None."""
    plain = str(directory).removeprefix("file:")
    if not plain.startswith("/"):
        return None
    place = Path(plain)
    nearest = next(parent for parent in (place, *place.parents) if parent.exists())
    return path_problem(nearest) if nearest.is_dir() else _A_FILE


def file_problem(path: str | Path) -> PathProblem | None:
    """Return what prevents writing a path that must be a file."""
    return _A_DIRECTORY if Path(path).is_dir() else path_problem(path)


def _above(missing: Path) -> PathProblem:
    nearest = next(parent for parent in (missing, *missing.parents) if parent.exists())
    if not nearest.is_dir():
        return _A_FILE
    return PathProblem(reason=f"the directory {missing} does not exist", advice="Create or mount it")
