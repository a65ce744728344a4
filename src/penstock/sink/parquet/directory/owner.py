"""The owner of a directory account: a file outside of its root that is written whole and never replaced."""

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.core.codec import decode_owner, encode_owner
from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import AccountOwner
from penstock.core.model import new_nonce
from penstock.sink.parquet.directory.filesystem import create_durably, rename_or_refuse
from penstock.support.private_files import io_error, make_private_directory, open_private, sync_directory

WRITE = FaultPoint("claim.write", "Whose an account is, is written under a name that does not count.", tears=True)
PLACE = FaultPoint("claim.place", "What says whose an account is gets its name, unless somebody was faster.")


def read_owner(path: Path) -> AccountOwner | None:
    """Return the owner of the account, None if it has none. Raises LedgerMismatch if damaged, FormatTooNew, OSError."""
    try:
        return decode_owner(path.read_bytes(), where=f"The file {path}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def place_owner(target: Path, owner: AccountOwner) -> None:
    """Note `owner` durably at `target` unless an owner is noted there. Raises OSError."""
    create_durably(target.parent, make_private_directory)
    unplaced = target.with_name(f"{target.name}.{new_nonce()}")
    with open_private(unplaced, "xb") as file:
        with WRITE.around(error=io_error, lost=io_error):
            WRITE.write(file, encode_owner(owner))
        file.flush()
        os.fsync(file.fileno())
    with PLACE.around(error=io_error, lost=io_error):
        place_or_leave(unplaced, target)
    sync_directory(target.parent)


def unplaced_owners(path: Path) -> Iterator[Path]:
    """Yield the files of drivers that died before their claim counted, once the account has an owner."""
    if path.exists():
        yield from path.parent.glob(f"{path.name}.*")


def place_or_leave(unplaced: Path, target: Path) -> bool:
    """Give a file its name unless another has it; return whether it got it. Its old name is gone in any case. Raises OSError.

    A sweep removes a file without its name once another one has that name.
    """
    try:
        if rename_or_refuse(unplaced, target):
            return True
        os.link(unplaced, target)
        placed = True
    except FileExistsError:
        placed = False
    except FileNotFoundError:
        if not target.exists():
            raise
        placed = False
    unplaced.unlink(missing_ok=True)
    return placed
