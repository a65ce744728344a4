"""The high-water mark of one area: an empty-handed look at a directory tells it, and no late writer can lower it.

Each mark is a file `marker-<position>` that is written whole under another name and then gets its own, which is never taken away
from it; the highest position counts. Lower marks are removed once a higher one is durable.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.codec import decode_marker, encode_marker
from penstock.faults import FaultPoint
from penstock.model import Marker, Position, new_nonce
from penstock.sink.parquet.directory.disk import io_error, rename_or_refuse, sync_directory

READ = FaultPoint("parquet.marker.read", "The high-water mark of an account is read.")
WRITE = FaultPoint("parquet.marker.write", "A new high-water mark is written under a name that does not count.", tears=True)
SYNC = FaultPoint("parquet.marker.sync", "The bytes of a new high-water mark are made durable.")
PLACE = FaultPoint("parquet.marker.place", "A new high-water mark gets the name that counts.")
SEAL = FaultPoint("parquet.marker.seal", "The name of a new high-water mark is made durable.")
FORGET = FaultPoint("parquet.marker.forget", "A lower high-water mark is removed.")

_MARK = re.compile(r"marker-(\d{20})\.json")
_UNPLACED = re.compile(r"marker-(\d{20})\.json\.([0-9a-f]{16})")


def read_marker(directory: Path) -> Marker | None:
    """The highest mark, None if there is none. Raises LedgerMismatch for damage, FormatTooNew, OSError."""
    with READ.around(error=io_error, lost=io_error):
        marks = _marks(directory)
        if not marks:
            return None
        path = directory / marks[max(marks)]
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # a higher one came meanwhile
            data = None
    return read_marker(directory) if data is None else decode_marker(data, where=f"The marker {path}")


def raise_marker(directory: Path, marker: Marker) -> None:
    """Put `marker` durably unless there is one as high. Raises OSError."""
    name = f"marker-{marker.position:020d}.json"
    unplaced = directory / f"{name}.{new_nonce()}"
    with open(unplaced, "xb") as file:
        with WRITE.around(error=io_error, lost=io_error):
            WRITE.write(file, encode_marker(marker))
        file.flush()
        with SYNC.around(error=io_error, lost=io_error):
            os.fsync(file.fileno())
    with PLACE.around(error=io_error, lost=io_error):
        _place(unplaced, directory / name)
    with SEAL.around(error=io_error, lost=io_error):
        sync_directory(directory)
    _forget_below(directory, marker.position)


def _place(unplaced: Path, target: Path) -> None:
    try:
        if rename_or_refuse(unplaced, target):
            return
        os.link(unplaced, target)
    except FileExistsError:  # another publisher of the same decision was faster
        pass
    unplaced.unlink(missing_ok=True)


def unplaced_marks(directory: Path) -> Iterator[Path]:
    """What was left by writers that died before their mark counted, and cannot count any more."""
    highest = max(_marks(directory), default=-1)
    for path in directory.iterdir():
        found = _UNPLACED.fullmatch(path.name)
        if found is not None and int(found[1]) <= highest:
            yield path


def _marks(directory: Path) -> dict[int, str]:
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return {}
    return {int(found[1]): found[0] for found in map(_MARK.fullmatch, names) if found is not None}


def _forget_below(directory: Path, position: Position) -> None:
    for lower, name in _marks(directory).items():
        if lower < position:
            with FORGET.around(error=io_error, lost=io_error):
                (directory / name).unlink(missing_ok=True)
