"""A directory in memory for what tests write and force to the disk thousands of times, where the machine has one.

Processes are killed in tests, never the machine: what was written is there afterwards, in memory as on a disk.
"""

import os
from pathlib import Path

_MEMORY = Path("/dev/shm")


def in_memory() -> Path | None:
    """For `dir` of `tempfile`: None is where temporary files are otherwise."""
    return _MEMORY if os.access(_MEMORY, os.W_OK) else None
