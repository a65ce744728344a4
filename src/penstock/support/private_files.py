"""Files and directories that only this process's user can read, whatever the umask: they hold rows, offsets or settings.

A directory with the set-group-ID bit (`chmod 2770`) is shared: its group can read and write all that is created in it. That is
for executors, or operators, who run as other users than the driver.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Literal

_FILE, _SHARED_FILE = 0o600, 0o660
_DIRECTORY, _SHARED_DIRECTORY = 0o700, 0o2770
_STDERR = 2
_durable = set[tuple[Path, int, int]]()


def make_private_directory(directory: Path) -> None:
    """Create `directory` unless it exists. Missing parents get the umask's permissions. Raises OSError."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=_DIRECTORY)
    except FileExistsError:
        if not directory.is_dir():
            raise
        return
    if _is_shared(directory.parent):
        directory.chmod(_SHARED_DIRECTORY)


def create_durably(directory: Path, make: Callable[[Path], None] | None = None) -> None:
    """Create a directory (with `make`) and its parents unless they exist, and make their names durable. Raises OSError.

    Those that exist too: who made them may have died before it forced their names to the disk. Up to the file system's root, as
    far as this user may have made names; once in a process for a directory that stays.
    """
    missing = [path for path in (directory, *directory.parents) if not path.is_dir()]
    for path in reversed(missing):
        make(path) if make is not None and path == directory else path.mkdir(exist_ok=True)
    found, real, made = directory.stat(), directory.resolve(), {path.resolve() for path in missing}
    if (real, found.st_dev, found.st_ino) in _durable:
        return
    for path in takewhile(lambda path: not path.is_mount(), (real, *real.parents)):
        if path in made or os.access(path.parent, os.R_OK | os.W_OK):
            sync_directory(path.parent)
    _durable.add((real, found.st_dev, found.st_ino))


def open_private(path: Path, mode: Literal["xb", "ab"]) -> BinaryIO:
    """Create `path`, or with `ab` append to it if it exists. Raises OSError, FileExistsError."""
    file = open(path, mode, opener=lambda name, flags: os.open(name, flags, _FILE))  # noqa: SIM115 - the caller closes it
    if mode == "xb" or file.tell() == 0:
        _share(path, file.fileno())
    return file


def create_private(path: Path) -> None:
    """Create an empty file unless it exists. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, _FILE)
    try:
        _share(path, handle)
    finally:
        os.close(handle)


@contextmanager
def stderr_to(file: BinaryIO) -> Iterator[None]:
    """Send standard error into `file`, also that of processes started meanwhile, and restore it afterwards. Closes `file`.

    Only the file descriptor is redirected: Python's `sys.stderr` is not, once the display has taken it over.
    """
    sys.stderr.flush()
    ours = os.dup(_STDERR)
    with file:
        os.dup2(file.fileno(), _STDERR)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, _STDERR)
        os.close(ours)


def _share(path: Path, handle: int) -> None:
    if _is_shared(path.parent):
        with suppress(PermissionError):  # another user made it
            os.fchmod(handle, _SHARED_FILE)


def _is_shared(directory: Path) -> bool:
    return bool(directory.stat().st_mode & stat.S_ISGID)


def sync_directory(path: str | Path) -> None:
    """Make the names in a directory durable. Raises OSError, after which it must not be tried again."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: str | Path) -> None:
    """Make the content of a file that another program wrote durable. Raises OSError, also for a symbolic link.

    After an error it must not be tried again: that could succeed although nothing was written.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def io_error(point: str) -> OSError:
    """Return the error that an armed fault point raises, as a disk would."""
    return OSError(errno.EIO, f"{os.strerror(errno.EIO)} at {point}")
