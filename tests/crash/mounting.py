"""Places that cannot be written and disks that are full: real mounts, taken away again whatever happens."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE_BYTES = 4096
_BALLAST = ".ballast"


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """`place`, an existing directory, cannot be written: a bind mount over itself, read-only, since a mode does not stop root."""
    with _mounted("--bind", str(place), place):
        _mount("-o", "remount,bind,ro", str(place))
        yield


@contextmanager
def small_disk(place: Path, *, size_kb: int = 2048) -> Iterator["SmallDisk"]:
    """A new, empty disk of that size at `place`."""
    place.mkdir(parents=True, exist_ok=True)
    with _mounted("-t", "tmpfs", "-o", f"size={size_kb}k", "penstock-test", place):
        yield SmallDisk(place)


class SmallDisk:
    """A disk that is filled up by one large file."""

    def __init__(self, place: Path) -> None:
        self._ballast = place / _BALLAST

    def leave(self, pages: int) -> None:
        """Fill the disk but for that many pages of PAGE_BYTES."""
        with self._ballast.open("ab", buffering=0) as file:
            while _writes(file.fileno()):
                pass
            os.ftruncate(file.fileno(), os.fstat(file.fileno()).st_size - pages * PAGE_BYTES)

    def make_room(self) -> None:
        """All that the ballast took."""
        self._ballast.unlink()


def _writes(file: int) -> bool:
    try:
        return os.write(file, bytes(PAGE_BYTES)) == PAGE_BYTES
    except OSError as full:
        if full.errno != errno.ENOSPC:
            raise
        return False


@contextmanager
def _mounted(*arguments: str | Path) -> Iterator[None]:
    _mount(*map(str, arguments))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(arguments[-1])], check=True)


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:  # in CI a skipped test is a failed one
        pytest.skip(f"this user may not mount: {done.stderr.strip()}")
