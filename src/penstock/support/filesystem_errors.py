"""Why a path cannot be used, and what to do about it, in plain words: told by an OSError, or by looking at the path itself.

Looking serves where another program (SQLite, Spark) says no more than that it failed. It explains; nothing is decided by it.
"""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_LITTLE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """`reason` ends a sentence of what happened, `advice` begins one of what to do; neither has a full stop."""

    reason: str
    advice: str


FULL = Trouble(reason="the disk is full", advice="Make room on it (bytes and inodes)")
_QUOTA = Trouble(reason="the quota is used up", advice="Make room or raise the quota")
_BROKEN = Trouble(reason="the disk reports an input/output error", advice="Mend or replace the disk")
_DENIED = Trouble(reason="permission is denied", advice="Grant this user access")
_READ_ONLY = Trouble(reason="the file system is read-only", advice="Mount it for writing")
_MISSING = Trouble(reason="a directory on the way is missing", advice="Create or mount the directory")
_A_FILE = Trouble(reason="a file is where a directory is expected", advice="Move that file away")
_A_DIRECTORY = Trouble(reason="a directory is where a file is expected", advice="Name a file, or move that directory away")
_TOO_LONG = Trouble(reason="the name is too long for the file system", advice="Use shorter names")
_ELSEWHERE = Trouble(reason="it is on another file system or mount", advice="Move it to the file system of the account")
_TOO_LARGE = Trouble(reason="the file is larger than allowed", advice="Raise the limit on file sizes")

_TROUBLES: Mapping[int, Trouble] = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: _QUOTA,
    errno.EIO: _BROKEN,
    errno.EACCES: _DENIED,
    errno.EPERM: Trouble(reason="the operation is not permitted", advice=_DENIED.advice),
    errno.EROFS: _READ_ONLY,
    errno.ENOENT: _MISSING,
    errno.ENOTDIR: _A_FILE,
    errno.EEXIST: _A_FILE,  # what mkdir says
    errno.EISDIR: _A_DIRECTORY,
    errno.ENAMETOOLONG: _TOO_LONG,
    errno.EXDEV: _ELSEWHERE,
    errno.ELOOP: Trouble(reason="links lead in a circle", advice="Remove one of them"),
    errno.EFBIG: _TOO_LARGE,
}


def trouble_of(cause: OSError) -> Trouble:
    """What `cause` means."""
    return _TROUBLES.get(cause.errno or 0, Trouble(reason=cause.strerror or str(cause), advice="Mend it"))


def reason(cause: OSError) -> str:
    """Why, as the end of a sentence."""
    return trouble_of(cause).reason


def trouble_at(path: str | Path) -> Trouble | None:
    """What keeps this process from writing `path` (a file in an existing directory, or a directory), None if nothing is seen."""
    place = Path(path)
    here = place if place.is_dir() else place.parent
    if not here.is_dir():
        return _above(here)
    if os.statvfs(here).f_flag & os.ST_RDONLY:
        return _READ_ONLY
    if not os.access(here, os.W_OK | os.X_OK) or (place.exists() and not os.access(place, os.W_OK)):
        return _DENIED
    return FULL if _is_full(here) else None


def trouble_in(directory: str | Path) -> Trouble | None:
    """As `trouble_at`, for a directory that may still have to be created. Only local paths are looked at."""
    plain = str(directory).removeprefix("file:")
    if not plain.startswith("/"):
        return None
    place = Path(plain)
    nearest = next(parent for parent in (place, *place.parents) if parent.exists())
    return trouble_at(nearest) if nearest.is_dir() else _A_FILE


def trouble_with_file(path: str | Path) -> Trouble | None:
    """As `trouble_at`, for a path that must be a file."""
    return _A_DIRECTORY if Path(path).is_dir() else trouble_at(path)


def _above(missing: Path) -> Trouble:
    nearest = next(parent for parent in (missing, *missing.parents) if parent.exists())
    if not nearest.is_dir():
        return _A_FILE
    return Trouble(reason=f"the directory {missing} does not exist", advice="Create or mount it")


def _is_full(directory: Path) -> bool:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize < _LITTLE_BYTES or (found.f_files > 0 and found.f_favail == 0)
