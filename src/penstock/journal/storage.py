"""The few things that the journal does with files, as an interface: a test's disk behind it forgets what was not forced to it.

`LocalStorage` is the real one. Its files are not buffered: what `write` was given is with the operating system when it returns,
and on the disk when `sync` has returned.
"""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from penstock.errors import Retryable
from penstock.support.private_files import create_durably, create_private, make_private_directory, open_private, sync_directory

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Numbers of the errors that say that there is no room."""


class JournalFile(Protocol):
    """A file that is open for writing."""

    def seek(self, at: int) -> object:
        """Let the next `write` begin at byte `at`."""
        ...

    def write(self, data: bytes, /) -> object:
        """Write all of `data`. Raises OSError, after which a part of it may be there."""
        ...

    def flush(self) -> object:
        """Do nothing: no byte is held back."""
        ...

    def truncate(self, size: int) -> object:
        """Cut the file at `size`."""
        ...

    def sync(self) -> None:
        """Force what was written to the disk. Raises OSError, after which it must not be tried again."""
        ...

    def close(self) -> None: ...


class Storage(Protocol):
    """A file system, as far as the journal uses it. Everything raises OSError."""

    def make_directory(self, path: Path) -> None:
        """Create a directory with its parents, durably, unless it is there."""
        ...

    def names(self, directory: Path) -> list[str]:
        """Return the sorted names in a directory; none if it does not exist."""
        ...

    def size(self, path: Path) -> int: ...

    def read(self, path: Path, start: int = 0, size: int = -1) -> bytes:
        """Return up to `size` bytes from `start` on; -1: all that there are."""
        ...

    def create(self, path: Path) -> JournalFile:
        """Create a file for writing. Raises FileExistsError."""
        ...

    def open(self, path: Path) -> JournalFile:
        """Open a file for writing into it."""
        ...

    def replace(self, path: Path, by: Path) -> None:
        """Give the file `by` the name `path`, also if that is taken."""
        ...

    def remove(self, path: Path) -> None: ...

    def sync_directory(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def free_bytes(self, directory: Path) -> int:
        """Return how many bytes are free there."""
        ...

    def lock(self, path: Path) -> "Lock":
        """Take the only writer's lock. Raises Retryable where another process has it."""
        ...


class Lock(Protocol):
    """A lock that ends with its process."""

    def release(self) -> None: ...


class LocalStorage:
    """A `Storage` on the machine's own file systems."""

    def make_directory(self, path: Path) -> None:
        create_durably(path, make_private_directory)

    def names(self, directory: Path) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(os.listdir(directory))  # noqa: PTH208 - names are wanted
        return []

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def read(self, path: Path, start: int = 0, size: int = -1) -> bytes:
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            parts = []
            while size != 0 and (part := file.read(size)):
                parts.append(part)
                size = size - len(part) if size > 0 else size
        return b"".join(parts)

    def create(self, path: Path) -> "LocalFile":
        open_private(path, "xb").close()
        return self.open(path)

    def open(self, path: Path) -> "LocalFile":
        return LocalFile(path)

    def replace(self, path: Path, by: Path) -> None:
        os.replace(by, path)  # noqa: PTH105 - as the interface is called

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_directory(self, directory: Path) -> None:
        sync_directory(directory)

    def free_bytes(self, directory: Path) -> int:
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize

    def lock(self, path: Path) -> "FileLock":
        return FileLock(path)


class LocalFile:
    """A `JournalFile` of the operating system."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115 - closed by `close`

    def seek(self, at: int) -> None:
        self._file.seek(at)

    def write(self, data: bytes, /) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) or 0 :]

    def flush(self) -> None:
        self._file.flush()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class FileLock:
    """A lock by flock(2) on a file that stays there; its text names the process."""

    def __init__(self, path: Path) -> None:
        create_private(path)
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115 - closed by `release`
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._file.read(20).decode(errors="replace").strip() or "unknown"
            self._file.close()
            raise Retryable(
                f"The journal {path.parent} has a writer already: process {holder}.",
                remedy="Give each receiver a journal of its own, or stop the other one.",
            ) from error
        text = f"{os.getpid()}\n".encode()
        with suppress(OSError):  # a full disk must not keep away who would make room on it
            self._file.write(text)
            self._file.truncate(len(text))

    def release(self) -> None:
        self._file.close()
