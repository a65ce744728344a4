"""How the files of an SQLite ledger can be read where their directory cannot be written: a read-only mount, another user's.

A reader of write-ahead mode takes part in the log and its index, `-wal` and `-shm`. SQLite removes both when the last driver
ends, and a reader cannot make them again there. Without them it reads the file alone, and ignores what a driver writes meanwhile:
`immutable`. Source: sqlite.org, "Write-Ahead Logging", "Read-Only Databases".
"""

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class StillFile:
    """The state of a ledger's file that nobody is writing. A driver that writes it meanwhile changes the state."""

    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


def is_writable(path: Path) -> bool:
    """Return whether the directory of the ledger at `path` can be written, as far as the operating system tells."""
    return os.access(path.resolve().parent, os.W_OK | os.X_OK)


def still_file(path: Path) -> StillFile | None:
    """Return the state of the ledger at `path` if it has to be read alone, None if SQLite reads it beside drivers.

    Only what is whole without its log is read alone. Raises Failed where the log or its index is missing, and OSError.
    """
    if is_writable(path):
        return None
    real = path.resolve()
    found = real.stat()
    log, index, journal = (real.with_name(f"{real.name}{end}") for end in ("-wal", "-shm", "-journal"))
    if (log.exists() and index.exists()) or _has_content(journal):
        return None  # SQLite itself tells if it would have to write
    if _has_content(log):
        raise _missing(real, index, f"the newest entries are in {log.name}, which cannot be read without it")
    if index.exists():
        raise _missing(real, log, f"{index.name} is the index of {log.name}, which may hold the newest entries")
    return StillFile(inode=found.st_ino, size_bytes=found.st_size, modified_ns=found.st_mtime_ns, changed_ns=found.st_ctime_ns)


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _missing(ledger: Path, lacking: Path, why: str) -> Failed:
    return Failed(
        f"The ledger {ledger} cannot be read in a directory that cannot be written: {lacking.name} is missing, and {why}.",
        remedy=f"Mount {ledger.parent} for writing, or copy {ledger}* into a directory that can be written, and name "
        f"the copy: `--set ledger=sqlite:///DIRECTORY/{ledger.name}`.",
    )
