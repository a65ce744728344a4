"""The memory of a driver and of all that it started: Spark's Java process, and the Python workers."""

import os
from pathlib import Path

_SESSION, _RESIDENT = 3, 21
"""Indices among the fields of /proc/PID/stat that follow the command's name (proc(5), fields 6 and 24)."""


def resident_bytes(leader: int, *, proc: Path = Path("/proc")) -> int:
    """Return what the processes of the session that `leader` began have in memory, 0 where the system does not tell.

    Pages that processes share count for each of them, which is little beside the Java process.
    """
    pages = 0
    for entry in proc.glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[_SESSION]) == leader:
            pages += int(fields[_RESIDENT])
    return pages * os.sysconf("SC_PAGE_SIZE")
