"""The file system operations that publishing into a directory is made of, and their errors."""

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from penstock.core.model import new_nonce
from penstock.errors import PenstockError, PublishFailed, Retryable
from penstock.support.filesystem_errors import problem_of
from penstock.support.private_files import sync_directory

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_PASSING = frozenset({errno.EAGAIN, errno.EBUSY, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM})


def publishing_failed(doing: str, cause: OSError) -> PenstockError:
    """Return the error for a failed step of publishing: Retryable if trying again may help, else PublishFailed."""
    problem = problem_of(cause)
    if cause.errno in _PASSING:
        return Retryable(f"{doing} failed: {problem.reason}.", remedy="Try again.")
    return PublishFailed(
        f"{doing} failed: {problem.reason}.",
        remedy=f"{problem.advice} and start again: the batch is decided, and the next start publishes it.",
    )


@contextmanager
def publishing(doing: str) -> Iterator[None]:
    """Raise an OSError of a step of publishing as `publishing_failed`."""
    try:
        yield
    except OSError as cause:
        raise publishing_failed(doing, cause) from cause


def create_durably(directory: Path, make: Callable[[Path], None] | None = None) -> None:
    """Create a directory (with `make`) and its parents, and make the new names durable. Do nothing if it exists."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        make(path) if make is not None and path == missing[0] else path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def is_one_mount(one: Path, other: Path) -> bool:
    """Return whether files can be renamed from one directory into another. Raises OSError on a read-only file system.

    Only trying tells bind mounts of one file system apart; a name that no file has is enough to try with.
    """
    name = new_nonce()
    try:
        rename_or_refuse(one / name, other / name)
    except FileNotFoundError:
        pass
    except OSError as refused:
        if refused.errno == errno.EXDEV:
            return False
        raise
    return one.stat().st_dev == other.stat().st_dev


@cache
def _renameat2() -> "Callable[[int, bytes, int, bytes, int], int] | None":
    found = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return found


def rename_or_refuse(source: Path, target: Path) -> bool:
    """Rename in one step unless `target` exists. Return False if the system cannot. Raises FileExistsError, OSError."""
    rename = _renameat2()
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(source), None, str(target))
