"""Names forced to the disk, and the error of a disk that fails."""

import errno
import os
from pathlib import Path


def sync_directory(path: str | Path) -> None:
    """Make the names in a directory durable. Raises OSError, after which it must not be tried again."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def io_error(point: str) -> OSError:
    """Return the error that an armed fault point raises, as a disk would."""
    return OSError(errno.EIO, f"{os.strerror(errno.EIO)} at {point}")
