"""A directory in memory for what tests write and force to the disk thousands of times, where the machine has one.

Processes are killed in tests, never the machine: what was written is there afterwards, in memory as on a disk. What a run leaves
that is itself killed stays too, until the next run removes it: three such runs would fill the memory of a machine.
"""

import ctypes
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 * 2**30
"""The servers of a worker take some 1.5 GB; a container often has 64 MB there."""
_PREFIX = "penstock-held-"
_UNLOCKED_S = 60.0
"""A directory younger than that may be one that its maker is about to lock."""


def in_memory() -> Path | None:
    """For `dir` of `held_directory`: None is where temporary files are otherwise."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        return None
    return _MEMORY


@contextmanager
def held_directory(name: str = "", *, parent: Path | str | None) -> Iterator[Path]:
    """A temporary directory, locked by this process as long as it lives."""
    with TemporaryDirectory(prefix=f"{_PREFIX}{name}", dir=parent) as directory, _locked(Path(directory)):
        yield Path(directory)


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of the test's own, in memory where the machine has such a place; for a `conftest.py` to import."""
    memory = in_memory()
    if memory is None:
        yield tmp_path_factory.mktemp("test")
        return
    with held_directory(parent=memory) as directory:
        yield directory


def give_back_memory() -> None:
    """To the machine, what allocators keep for later: Arrow's and the C library's. A worker keeps more than a gigabyte else."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def remove_left_directories(parent: Path) -> None:
    """Remove what killed runs left in `parent`: directories of tests that nobody holds."""
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            if time.time() - directory.stat().st_ctime > _UNLOCKED_S:
                with _locked(directory):
                    shutil.rmtree(directory, ignore_errors=True)
        except OSError:  # held, gone meanwhile, or another user's
            continue


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Raises OSError if another process holds it."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)
