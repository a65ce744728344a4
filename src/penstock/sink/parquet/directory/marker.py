"""The owner and the marker files of a directory account: written whole under another name, then given their own, never replaced.

The owner is one file outside of the root. A marker is the high-water mark of one area, which no late writer can lower: a file
`marker-<position>`. A listing finds the highest position, which counts. The newest are retained: each is the manifest of its
publication.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.core.codec import decode_marker, decode_owner, encode_marker, encode_owner
from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import AccountOwner, Marker
from penstock.core.model import Position, new_nonce
from penstock.errors import LedgerMismatch
from penstock.sink.parquet.directory.rename import publishing, rename_or_refuse
from penstock.support.private_files import create_durably, io_error, make_private_directory, open_private, sync_directory

WRITE_OWNER = FaultPoint("claim.write", "The owner of an account is written under a name that does not count.", tears=True)
PLACE_OWNER = FaultPoint("claim.place", "The file that names the owner of an account gets its name, unless it exists.")


READ = FaultPoint("parquet.marker.read", "The high-water mark of an account is read.")
WRITE = FaultPoint("parquet.marker.write", "A new high-water mark is written under a name that does not count.", tears=True)
SYNC = FaultPoint("parquet.marker.sync", "The bytes of a new high-water mark are made durable.")
PLACE = FaultPoint("parquet.marker.place", "A new high-water mark gets the name that counts.")
SEAL = FaultPoint("parquet.marker.seal", "The name of a new high-water mark is made durable.")
FORGET = FaultPoint("parquet.marker.forget", "High-water marks of long ago are removed.")

KEPT_MARKS = 1_000

_MARK = re.compile(r"marker-(\d{20})\.json")
_UNPLACED = re.compile(r"marker-(\d{20})\.json\.([0-9a-f]{16})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedArea:
    """The owner and the markers of an area whose table is at `root`.

    `staging` is this sink's own directory outside of `root`, with the markers. `owner_file` notes the owner of the account; it is
    the same for every pipeline and sink.
    """

    root: Path
    staging: Path
    owner_file: Path

    @property
    def claim_place(self) -> str:
        return str(self.owner_file)

    def claimed_by(self) -> AccountOwner | None:
        with publishing(f"Reading the owner of the account {self.root}"):
            return read_owner(self.owner_file)

    def claim(self, owner: AccountOwner) -> None:
        target = self.owner_file
        with publishing(f"Claiming the account {self.root}"):
            create_durably(target.parent, make_private_directory)
            unplaced = target.with_name(f"{target.name}.{new_nonce()}")
            with open_private(unplaced, "xb") as file:
                with WRITE_OWNER.around(error=io_error, lost=io_error):
                    WRITE_OWNER.write(file, encode_owner(owner))
                file.flush()
                os.fsync(file.fileno())
            with PLACE_OWNER.around(error=io_error, lost=io_error):
                place_or_leave(unplaced, target)
            sync_directory(target.parent)

    def marker(self) -> Marker | None:
        with publishing(f"Reading the marker in {self.staging}"), READ.around(error=io_error, lost=io_error):
            while marks := self._marks():
                path = self.staging / marks[max(marks)]
                with suppress(FileNotFoundError):  # a higher one came meanwhile
                    return decode_marker(path.read_bytes(), where=f"The marker {path}")
            return None

    def marker_of(self, position: Position) -> Marker | None:
        path = self.staging / _name(position)
        with publishing(f"Reading a marker in {self.staging}"), suppress(FileNotFoundError):
            return decode_marker(path.read_bytes(), where=f"The marker {path}")
        return None

    def manifests(self) -> Iterator[Marker]:
        with publishing(f"Reading the markers in {self.staging}"):
            positions = sorted(self._marks())
        yield from (marker for position in positions if (marker := self.marker_of(Position(position))) is not None)

    def advance(self, marker: Marker) -> None:
        """Write `marker` durably unless its position has one. Raises as `claimed_by`; LedgerMismatch also for another batch."""
        with publishing(f"Writing the marker in {self.staging}"):
            path = self.staging / _name(marker.position)
            unplaced = path.with_name(f"{path.name}.{new_nonce()}")
            with open_private(unplaced, "xb") as file:
                with WRITE.around(error=io_error, lost=io_error):
                    WRITE.write(file, encode_marker(marker))
                file.flush()
                with SYNC.around(error=io_error, lost=io_error):
                    os.fsync(file.fileno())
            with PLACE.around(error=io_error, lost=io_error):
                if not place_or_leave(unplaced, path):
                    _require_same(self.marker_of(marker.position), marker, path)
            with SEAL.around(error=io_error, lost=io_error):
                sync_directory(self.staging)
            with FORGET.around(error=io_error, lost=io_error):
                marks = self._marks()  # the newest tells what is published, the others only what was published when
                for position in sorted(marks, reverse=True)[KEPT_MARKS:]:
                    (self.staging / marks[position]).unlink(missing_ok=True)

    def _unplaced(self) -> Iterator[Path]:
        """Yield the files of drivers that died before their marker or claim counted, and that cannot count any more."""
        highest = max(self._marks(), default=-1)
        for path in self.staging.iterdir():
            found = _UNPLACED.fullmatch(path.name)
            if found is not None and int(found[1]) <= highest:
                yield path
        if self.owner_file.exists():
            yield from self.owner_file.parent.glob(f"{self.owner_file.name}.*")

    def _marks(self) -> dict[int, str]:
        try:
            names = [path.name for path in self.staging.iterdir()]
        except FileNotFoundError:
            return {}
        return {int(mark[1]): mark[0] for mark in map(_MARK.fullmatch, names) if mark is not None}


def read_owner(path: Path) -> AccountOwner | None:
    """Return the owner of the account, None if it has none. Raises LedgerMismatch if damaged, FormatTooNew, OSError."""
    try:
        return decode_owner(path.read_bytes(), where=f"The file {path}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def place_or_leave(unplaced: Path, target: Path) -> bool:
    """Rename `unplaced` to `target` unless that exists; return whether it did so. `unplaced` is gone in any case. Raises OSError.

    A concurrent sweep may remove `unplaced` once another driver's file is at `target`.
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


def _require_same(found: Marker | None, marker: Marker, path: Path) -> None:
    """Raise LedgerMismatch unless `found` is of this decision: only another publisher of it may have been faster (I8)."""
    if found is None or (found.query_id, found.batch_id, found.ledger_id or marker.ledger_id) == (
        marker.query_id,
        marker.batch_id,
        marker.ledger_id,
    ):
        return
    raise LedgerMismatch(
        f"{path} names batch {found.batch_id} of query {found.query_id}, decided by ledger {found.ledger_id}, expected batch "
        f"{marker.batch_id} of query {marker.query_id}, decided by ledger {marker.ledger_id}.",
        remedy="Two ledgers deliver into this account: stop both, and run `penstock verify` to see which rows are there twice.",
    )


def _name(position: Position) -> str:
    return f"marker-{position:020d}.json"
