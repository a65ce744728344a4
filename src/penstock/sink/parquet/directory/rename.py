"""Publishes one staged file: moves it into the table in one step that cannot happen twice."""

import filecmp
import os
from collections.abc import Callable
from pathlib import Path

from penstock.core.faults import FaultPoint
from penstock.errors import ContentConflict, StagedDataLost
from penstock.sink.parquet.account import PieceState
from penstock.sink.parquet.directory.filesystem import rename_or_refuse
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
