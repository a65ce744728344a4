"""`ObjectArea`, the driver side of an account on an object store for one sink: completes uploads, marks, sweeps, lists.

What the sink stores beside a table lies below `_penstock/`, which readers of tables skip. Markers are named so that the newest
comes first in a listing: one request finds it, however many there are.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO, ClassVar

from penstock.blob import BlobStore, Found, Pending, expiry_finding
from penstock.blob.check import StoreCheck, check_store
from penstock.blob.object_file import open_object
from penstock.core.adopted_files import SPARK_LOG, AdoptedFiles
from penstock.core.codec import decode_marker, decode_owner, encode_marker, encode_owner
from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import AccountOwner, Marker
from penstock.core.model import Attempt, Finding, PipelineName, Position, SinkName, Staged, SweepCut, Waiting
from penstock.errors import ContentConflict, OutcomeUnknown, Retryable
from penstock.sink.concurrent import map_concurrently
from penstock.sink.parquet.account import PieceState, StoredFile
from penstock.sink.parquet.layout import attempt_of, escape, is_hidden, is_owned
from penstock.sink.parquet.object.upload import ObjectUploads, tag_of
from penstock.sink.parquet.ownership import is_anothers

PREPARE = FaultPoint("object.prepare", "The driver writes to an account to see whether it may.")
CLAIM = FaultPoint("claim.put", "The owner of an account is put if absent.")
PUT = FaultPoint("inline.put", "A small file that travelled inside the decision is put.")
COMPLETE = FaultPoint("object.publish.complete", "The upload of a file is completed: it appears.")
LOOK = FaultPoint("object.publish.look", "A published file is looked at: is it there, and is it ours?")
READ_MARK = FaultPoint("object.mark.read", "The newest high-water mark of an account is read.")
WRITE_MARK = FaultPoint("object.mark.write", "A new high-water mark of an account is put.")
DISCARD = FaultPoint("multipart.discard", "An upload that can never be decided any more is ended.")
REMOVE = FaultPoint("rewind.object_delete", "A published object that a rewind takes back is deleted.")

HIDDEN = "_penstock"
OWNER = f"{HIDDEN}/.owner.json"
"""The key of the object that names the owner of the account."""
KEPT_MARKS = 1_000
_LAST_POSITION = 10**12 - 1
LOOKED_FOR_S = 10.0
"""After that long without reading the marker, a driver reads it before it puts a small file: it may have stood still."""


def own_folder(pipeline: PipelineName, sink: SinkName) -> str:
    """Return the folder for what one sink of one pipeline stores beside the table."""
    return f"{HIDDEN}/{escape(pipeline)}/{escape(sink)}/"


def mark_key(folder: str, position: Position) -> str:
    """Return the key of the marker of the publication at `position`."""
    return f"{folder}marks/{_LAST_POSITION - position:012d}.json"


@dataclass(slots=True, kw_only=True)
class ObjectArea:
    """The part of an account on an object store that one sink of one pipeline uses.

    `folder` holds this sink's own objects, hidden from readers of tables. `owner` is part of the names of its files. `reopen`
    makes the store in a task; it is picklable also where the client library is missing.
    """

    is_remote: ClassVar = True

    store: BlobStore
    folder: str
    owner: str
    reopen: Callable[[], BlobStore] = field(repr=False)
    _looked_s: float = 0.0
    _seen: Marker | None = None

    def prepare(self) -> ObjectUploads:
        """Write an object, to see whether the account can be written. Raises Failed, Retryable."""
        with PREPARE.around():
            self.store.put(f"{self.folder}prepared", b"", tag="prepared")
        return ObjectUploads(store=self.store)

    @property
    def claim_place(self) -> str:
        return f"{self.store.url}/{OWNER}"

    def claimed_by(self) -> AccountOwner | None:
        return owner_in(self.store)

    def claim(self, owner: AccountOwner) -> None:
        with CLAIM.around():
            self.store.put_if_absent(OWNER, encode_owner(owner), tag="owner")

    def marker(self) -> Marker | None:
        self._looked_s = _clock_s()
        self._seen = self._newest_marker()
        return self._seen

    def marker_of(self, position: Position) -> Marker | None:
        return self._read_marker(mark_key(self.folder, position))

    def manifests(self) -> Iterator[Marker]:
        marks = [mark.key for mark in self.store.list(f"{self.folder}marks/", limit=2 * KEPT_MARKS)]
        yield from (marker for marker in map_concurrently(self._read_marker, marks) if marker is not None)

    def state(self, piece: Staged) -> PieceState:
        if self._is_shown(piece):
            return PieceState.SHOWN
        if piece.inline is not None or self._is_staged(piece):
            return PieceState.STAGED
        return PieceState.SHOWN if self._is_shown(piece) else PieceState.GONE  # another publisher may have completed it meanwhile

    def show(self, pieces: Sequence[Staged]) -> Sequence[Staged]:
        shown = map_concurrently(self._show_one, pieces)
        return [piece for piece, is_shown in zip(pieces, shown, strict=True) if not is_shown]

    def advance(self, marker: Marker) -> None:
        """Put the marker of this position. The highest counts, so a late one changes nothing. Raises Failed, Retryable."""
        with WRITE_MARK.around():
            self.store.put(mark_key(self.folder, marker.position), encode_marker(marker), tag="mark")
        if marker.position % KEPT_MARKS == 0:
            self._forget_marks()

    def remove(self, pieces: Sequence[Staged]) -> None:
        map_concurrently(self._remove_one, pieces)

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """End uploads of dead attempts, and delete old markers. Raises Failed, Retryable."""
        dead = [pending for pending, attempt in self._pending() if attempt is None or cut.is_dead(attempt)]
        if is_anothers(self.claimed_by(), cut):
            return []
        if not dry_run:
            self._forget_marks()
        map_concurrently(self._discard, [] if dry_run else dead)
        return [f"{self.store.url}/{pending.key}" for pending in dead]

    def missing_directory(self) -> str | None:
        """Return None: a store has objects, and no directories."""
        return None

    def files(self) -> Iterator[StoredFile]:
        for found in self.store.list():
            if not is_hidden(found.key):
                yield StoredFile(name=found.key, size_bytes=found.size_bytes)

    def adopted(self) -> AdoptedFiles | None:
        """Return None: an account in a store is not taken over."""
        return None

    def spark_log(self) -> str | None:
        found = next(iter(self.store.list(f"{SPARK_LOG}/", limit=1)), None)
        return None if found is None else f"{self.store.url}/{SPARK_LOG}"

    def open(self, name: str) -> BinaryIO:
        return open_object(self.store, name)

    def check(self) -> Sequence[Finding]:
        """Return whether the account can be written, read, listed and deleted from; if so, also what expires there."""
        reached = check_store(self.store, subject=self._subject, folder=self.folder)
        return [reached, *self.lifecycle()] if reached.ok else [reached]

    @contextmanager
    def task_check(self) -> Iterator[StoreCheck]:
        yield StoreCheck(subject=self._subject, reopen=self.reopen, folder=self.folder)

    def lifecycle(self) -> Sequence[Finding]:
        return [expiry_finding(self.store, kept=self.folder, called=f"what is kept in {self.folder}", uploads=True)]

    def waiting(self) -> Iterator[Waiting]:
        for pending, attempt in self._pending():
            yield Waiting(name=f"{self.store.url}/{pending.key}", attempt=attempt, size_bytes=pending.size_bytes)

    @property
    def _subject(self) -> str:
        return f"account {self.store.url}"

    def _newest_marker(self) -> Marker | None:
        with READ_MARK.around():
            newest = next(self.store.list(f"{self.folder}marks/", limit=1), None)
            return None if newest is None else self._read_marker(newest.key)

    def _read_marker(self, key: str) -> Marker | None:
        data = self.store.get(key)
        return None if data is None else decode_marker(data, where=f"The marker {self.store.url}/{key}")

    def _pending(self) -> Iterator[tuple[Pending, Attempt | None]]:
        """Yield uploads of this sink with their attempts, None for a marker or an owner whose upload was not finished.

        Other sinks judge their uploads by their own ledgers.
        """
        newest = next(self.store.list(f"{self.folder}marks/", limit=1), None)
        for pending in self.store.pending(""):
            attempt = attempt_of(pending.key) if is_owned(pending.key, self.owner) else None
            if attempt is not None or self._is_unplaced(pending.key, newest):
                yield pending, attempt

    def _is_unplaced(self, key: str, newest: Found | None) -> bool:
        """Return whether a killed run left the upload of `key` unfinished and it cannot count now. Newer markers sort first."""
        if key == OWNER:
            return self.claimed_by() is not None
        if not key.startswith(self.folder):
            return False
        return not key.startswith(f"{self.folder}marks/") or (newest is not None and key >= newest.key)

    def _forget_marks(self) -> None:
        """Delete old markers. The newest tells what is published, the others only which ledger an old publication is of."""
        marks = self.store.list(f"{self.folder}marks/", limit=2 * KEPT_MARKS)
        map_concurrently(self.store.delete, [mark.key for mark in islice(marks, KEPT_MARKS, None)])

    def _discard(self, pending: Pending) -> None:
        with DISCARD.around():
            self.store.discard(pending)

    # --- publishing

    def _show_one(self, piece: Staged) -> bool:
        if piece.inline is not None:
            return self._put(piece, piece.inline) or self._is_shown(piece)
        upload = str(piece.ref["upload"])
        parts = piece.ref["parts"]
        assert isinstance(parts, list)
        with COMPLETE.around():
            self.store.complete(piece.name, upload, [str(part) for part in parts], tag=tag_of(piece.name))  # I3, I6
        if self._is_shown(piece):  # I12
            return True
        if self._is_staged(piece):
            raise OutcomeUnknown(f"{self.store.url}/{piece.name} was completed, but is not there.", remedy="Try again.")
        return self._is_shown(piece)

    def _put(self, piece: Staged, data: bytes) -> bool:
        """Put a file unless it is there; return whether it was absent.

        A put consumes nothing, and a late one must not bring back what maintenance removed. If this process stood still before it
        signed the request, the marker shows it here. If it stood still afterwards, the store refuses a request that is too old.
        So each request is sent once: the caller repeats it, and reads the marker before.
        """
        with PUT.around():
            if _clock_s() - self._looked_s > LOOKED_FOR_S:
                self._require_same_mark(piece)
            return self.store.sending_once.put_if_absent(piece.name, data, tag=tag_of(piece.name))

    def _require_same_mark(self, piece: Staged) -> None:
        looked_s = _clock_s()
        if self._newest_marker() != self._seen:
            raise Retryable(
                f"Another driver published while this one was about to put {self.store.url}/{piece.name}.",
                remedy="Try again: Penstock reads the marker first.",
            )
        self._looked_s = looked_s

    def _remove_one(self, piece: Staged) -> None:
        if self._is_shown(piece):
            with REMOVE.around():
                self.store.delete(piece.name)

    def _is_staged(self, piece: Staged) -> bool:
        return self.store.is_pending(piece.name, str(piece.ref["upload"]))

    def _is_shown(self, piece: Staged) -> bool:
        with LOOK.around():
            found = self.store.head(piece.name)
        if found is not None:
            self._require_ours(found, piece)
        return found is not None

    def _require_ours(self, found: Found, piece: Staged) -> None:
        tag = tag_of(piece.name)
        if (found.size_bytes, found.tag) != (piece.totals.size_bytes, tag):
            raise ContentConflict(
                f"{self.store.url}/{piece.name} holds {found.size_bytes} bytes tagged {found.tag!r}, expected "
                f"{piece.totals.size_bytes} bytes tagged {tag!r}.",
                remedy="Something else wrote this object. Move it away, then run `penstock recover`.",
            )


def owner_in(store: BlobStore) -> AccountOwner | None:
    """Return the owner of the account at the root of `store`. Raises Failed, Retryable, LedgerMismatch, FormatTooNew."""
    data = store.get(OWNER)
    return None if data is None else decode_owner(data, where=f"The object {store.url}/{OWNER}")


def _clock_s() -> float:
    """Return a clock that is never set back and, where the system has one, goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
