"""Publishes one staged file: moves it into the table in one step that cannot happen twice."""

import ctypes
import errno
import filecmp
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from penstock.core.faults import FaultPoint
from penstock.core.model import new_nonce
from penstock.errors import ContentConflict, PublishFailed, Retryable, StagedDataLost
from penstock.sink.parquet.account import PieceState
from penstock.support.filesystem_errors import problem_of
from penstock.support.private_files import io_error

RENAME = FaultPoint("rename.move", "A staged file is renamed into the table.")
LINK = FaultPoint("hardlink.link", "A staged file gets its published name, where a rename cannot refuse to replace.")
UNLINK = FaultPoint("hardlink.unlink", "A published file loses its staged name.")

Move = Callable[[Path, Path], None]
"""Publishes a staged path as a target path. Raises FileExistsError, FileNotFoundError, OSError."""


def move(staged: Path, target: Path) -> None:
    """Rename, or link and unlink where the file system cannot refuse to replace."""
    with RENAME.around(error=io_error, lost=io_error):
        done = rename_or_refuse(staged, target)
    if not done:
        move_by_link(staged, target)


def move_by_link(staged: Path, target: Path) -> None:
    """Link, then unlink. The staged name goes before the marker comes, so a late repetition finds nothing to publish."""
    with LINK.around(error=io_error, lost=io_error):
        os.link(staged, target, follow_symlinks=False)
    forget(staged)


def forget(staged: Path) -> None:
    """Remove the staged name of a file that is published."""
    with UNLINK.around(error=io_error, lost=io_error):
        staged.unlink(missing_ok=True)


def state_of(staged: Path, target: Path, *, size_bytes: int) -> PieceState:
    """Return where a piece is.

    The staged name is looked at first: a concurrent publisher only moves pieces from there to the target. Raises ContentConflict
    if the target holds anything but the decided file, StagedDataLost if the staged file is shorter or longer.
    """
    waiting, shown = _stat(staged), _stat(target)
    if shown is None:
        if waiting is None:
            return PieceState.GONE
        _require_whole(staged, waiting.st_size, size_bytes)
        return PieceState.STAGED
    same = shown.st_size == size_bytes
    if same and waiting is not None and not os.path.samestat(waiting, shown):
        same = filecmp.cmp(staged, target, shallow=False)
    if not same:
        raise ContentConflict(
            f"{target} holds {shown.st_size} bytes that are not the {size_bytes} bytes decided for it.",
            remedy="Find out who writes into the table; move the foreign file away, then run `penstock recover`.",
        )
    return PieceState.SHOWN


def _require_whole(staged: Path, found_bytes: int, decided_bytes: int) -> None:
    """Raise StagedDataLost for another size, before a reader can see the file."""
    if found_bytes != decided_bytes:
        raise StagedDataLost(
            f"The staged file {staged} has {found_bytes} bytes, but {decided_bytes} were decided.",
            remedy="Restore it from a backup, then run `penstock recover`.",
        )


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


# --- renaming without replacing

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_PASSING = frozenset({errno.EAGAIN, errno.EBUSY, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM})


@contextmanager
def publishing(doing: str) -> Iterator[None]:
    """Raise an OSError of a step of publishing as Retryable if trying again may help, else as PublishFailed."""
    try:
        yield
    except OSError as cause:
        problem = problem_of(cause)
        if cause.errno in _PASSING:
            raise Retryable(f"{doing} failed: {problem.reason}.", remedy="Try again.") from cause
        raise PublishFailed(
            f"{doing} failed: {problem.reason}.",
            remedy=f"{problem.advice} and start again: what is decided stays decided, and the next start publishes it.",
        ).lacking(problem.lacks) from cause


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
    if rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:  # I2: replaces nothing
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(source), None, str(target))
