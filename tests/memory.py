"""A directory in memory for what tests write and force to the disk thousands of times, where the machine has one.

Processes are killed in tests, never the machine: what was written is there afterwards, in memory as on a disk.
"""

import os
import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 * 2**30
"""The servers of a worker take some 1.5 GB; a container often has 64 MB there."""


def in_memory() -> Path | None:
    """For `dir` of `tempfile`: None is where temporary files are otherwise."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        return None
    return _MEMORY
