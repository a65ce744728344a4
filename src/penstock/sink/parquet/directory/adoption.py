"""Takes a directory over that Spark's file sink filled, so that it goes on as an account.

The files that the sink's log names are what its readers saw. Their list is written first: from then on they belong to the
account. Then every other file, which a failed batch left, moves out of the directory, and at last the log: from then on readers
list the directory. All of it can be repeated. Nothing is deleted.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from penstock.core.adopted_files import SPARK_LOG, AdoptedFiles
from penstock.core.codec import decode_adopted_files, encode_adopted_files
from penstock.core.faults import FaultPoint
from penstock.errors import Refused
from penstock.sink.parquet.directory.rename import publishing, rename_or_refuse
from penstock.support.private_files import create_durably, create_private, io_error, make_private_directory, sync_directory

WRITE = FaultPoint("adopt.list_write", "The list of the files that an account begins with is written.", tears=True)
PLACE = FaultPoint("adopt.list_place", "The list of the files that an account begins with gets the name that counts.")
LEAVE_OUT = FaultPoint("adopt.file_move", "A file that no batch of Spark's file sink has moves out of the directory.")
SET_ASIDE = FaultPoint("adopt.log_move", "The log of Spark's file sink moves out of the directory.")

_LIST, _LEFT_OUT = "adopted-files.json", "left-out"


def log_of(root: Path) -> Path | None:
    """Return the log of Spark's file sink in a directory, None if there is none."""
    log = root / SPARK_LOG
    return log if log.is_dir() else None


def adopted_in(staging: Path) -> AdoptedFiles | None:
    """Return what the account began with, None if nothing was taken over. Raises LedgerMismatch, PublishFailed, Retryable."""
    path = staging / _LIST
    with publishing(f"Reading {path}"):
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
    return decode_adopted_files(data, where=f"The list {path}")


def adopt_files(root: Path, staging: Path, adopted: AdoptedFiles, others: Iterable[str]) -> None:
    """Note that the account begins with `adopted`, and move `others` and the log of Spark's file sink to `staging`.

    Raises Refused if it began with other files, PublishFailed, Retryable.
    """
    _write_list(root, staging, adopted)
    with publishing(f"Moving files out of {root}"):
        left_out = staging / _LEFT_OUT
        for name in others:
            _move_out(root / name, left_out / name)
        if (log := log_of(root)) is not None:
            with SET_ASIDE.around(error=io_error, lost=io_error):
                _move(log, set_aside_in(staging, adopted))
            sync_directory(root)
            sync_directory(staging)


def left_out_in(staging: Path) -> Path:
    """Return the directory that files of no batch move to."""
    return staging / _LEFT_OUT


def set_aside_in(staging: Path, adopted: AdoptedFiles) -> Path:
    """Return where the log of Spark's file sink moves to."""
    return staging / f"{SPARK_LOG}-{adopted.batch_id}"


def _write_list(root: Path, staging: Path, adopted: AdoptedFiles) -> None:
    found = adopted_in(staging)
    if found == adopted:
        return
    if found is not None and not found.sizes.items() <= adopted.sizes.items():
        raise query_ran_since(found, root, staging)
    new = staging / f"{_LIST}.new"  # one name: what a kill leaves is written over
    with publishing(f"Writing {staging / _LIST}"):
        create_durably(staging, make_private_directory)
        create_private(new)
        with new.open("wb") as file:
            with WRITE.around(error=io_error, lost=io_error):
                WRITE.write(file, encode_adopted_files(adopted))
            file.flush()
            os.fsync(file.fileno())
        with PLACE.around(error=io_error, lost=io_error):
            new.rename(staging / _LIST)
        sync_directory(staging)


def query_ran_since(found: AdoptedFiles, root: Path, staging: Path) -> Refused:
    """Return the refusal of a log that lacks files of an earlier try: `found` is what that noted."""
    kept = set_aside_in(staging, found)
    return Refused(
        f"{root} was taken over with {len(found.sizes)} files up to batch {found.batch_id}, but the log of Spark's file sink "
        "there does not name all of those: the old query ran since.",
        remedy=f"Stop it for good, put the older entries of its log back, and adopt again: `cp -n {kept}/* {root / SPARK_LOG}/`",
    )


def _move_out(path: Path, target: Path) -> None:
    if not os.path.lexists(path):  # an earlier try moved it
        return
    if os.path.lexists(target):
        raise Refused(
            f"{path} cannot move to {target}, which is there already.", remedy=f"Look at both, and move {path} away yourself."
        )
    create_durably(target.parent, make_private_directory)
    with LEAVE_OUT.around(error=io_error, lost=io_error):
        _move(path, target)
    sync_directory(path.parent)
    sync_directory(target.parent)


def _move(path: Path, target: Path) -> None:
    if not rename_or_refuse(path, target):
        path.rename(target)  # the system cannot refuse to replace; nothing was there
