"""The journal's only writer: events become durable in groups, and segments go when every reader has released them.

Not for several threads: `penstock.journal.group` gives it one. After an error it is dropped; the next one opens what is on disk.
"""

import errno
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.core.faults import FaultPoint
from penstock.core.model import new_nonce
from penstock.errors import Failed, JournalDamaged, PenstockError, Retryable, Usage
from penstock.journal.event import LARGEST_EVENT, Event, Receipt
from penstock.journal.format import (
    LOCK,
    NOTE,
    READERS,
    SEGMENTS,
    DurableNote,
    Numbered,
    SegmentHeader,
    SegmentIndex,
    encode_header,
    encode_note,
    index_path,
    segment_path,
)
from penstock.journal.frame import encode_frame, size_of
from penstock.journal.producers import FIRST_NUMBER, Producers
from penstock.journal.readers import registrations, settled
from penstock.journal.recovery import Recovered, add_place, recover, write_index
from penstock.journal.second_copy import level
from penstock.journal.segment import Segment
from penstock.journal.storage import FULL_DISK, JournalFile, LocalStorage, Lock, Storage
from penstock.support.filesystem_errors import problem_of
from penstock.support.private_files import io_error

WRITE = FaultPoint("journal.write", "The frames of waiting events are written to the segment, and to its copy.", tears=True)
SYNC = FaultPoint("journal.sync", "The segment, and its copy, are forced to the disk: these events may be acknowledged.")
NOTE_DURABLE = FaultPoint("journal.note", "The note of what is durable, by which readers go, is written.")
CREATE = FaultPoint("journal.create", "A new segment gets its header and its name, both forced to the disk.")
REMOVE = FaultPoint("journal.remove", "A segment that every reader has released is removed.")

_LONGEST_NAME, _LONGEST_HEADER = 255, 65_535


class JournalFull(Retryable):
    """The journal takes no more events before its readers have released some, or before there is room on the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """When a segment is sealed, and when events are refused.

    `most_bytes` and `oldest_us` are of events that a reader still needs; `least_free_bytes` is what stays free on the disk.
    Segments that are released are removed when they are `keep_us` old.
    """

    segment_bytes: int = 64 << 20
    most_bytes: int = 16 << 30
    oldest_us: int | None = None
    least_free_bytes: int = 64 << 20
    keep_us: int = 0


class Journal:
    """An open journal. `append` collects events, `commit` makes them durable; only then may they be acknowledged.

    With `copy`, both directories have them by then. Raises Retryable where another process writes to it, JournalDamaged,
    LedgerMismatch, FormatTooNew, Failed.
    """

    def __init__(
        self,
        home: Path,
        *,
        now_us: Callable[[], int],
        copy: Path | None = None,
        limits: JournalLimits | None = None,
        storage: Storage | None = None,
    ) -> None:
        self._home, self._homes = home, (home,) if copy is None else (home, copy)
        self._limits, self._now_us = limits or JournalLimits(), now_us
        self._storage: Storage = LocalStorage() if storage is None else storage
        self._segments: list[Segment] = []
        self._places: list[tuple[int, int]] = []
        self._next = self._durable = self._offset = self._size = self._checksum = 0
        self._producers = Producers({})
        self._files: list[JournalFile] = []
        self._note_file: JournalFile | None = None
        self._pending: list[bytes] = []
        self._locks: list[Lock] = []
        try:
            with self._explained():
                self._open()
        except BaseException:
            self.close()
            raise

    @property
    def next(self) -> int:
        """The sequence number of the next event."""
        return self._next

    @property
    def durable(self) -> int:
        """The first sequence number that is not durable yet."""
        return self._durable

    def append(self, events: Sequence[Event]) -> tuple[Receipt, ...]:
        """Take `events`, all or none, and return their receipts; acknowledge them only after `commit`, repeats too.

        Raises JournalFull, NumberOutOfOrder, Usage, Refused.
        """
        for event in events:
            _require_fit(event)
        found = self._producers.judge(events, now_us=self._now_us())
        if new := [event for event, receipt in zip(events, found, strict=True) if receipt is None]:
            self._require_room(new)
        return tuple(self._append(event) if receipt is None else receipt for event, receipt in zip(events, found, strict=True))

    def commit(self) -> None:
        """Make everything durable that was appended. Raises Retryable where the disk is full, Failed; then drop this journal."""
        if not self._pending:
            return
        with self._explained():
            if self._offset >= self._limits.segment_bytes and self._durable > self._segments[-1].first:
                self._begin_segment()
            data = b"".join(self._pending)
            self._write(data)
        self._checksum = zlib.crc32(data, self._checksum)
        for sequence, frame in enumerate(self._pending, self._durable):
            add_place(self._places, sequence, self._offset)
            self._offset += len(frame)
            self._size += len(frame)
        self._durable = self._next
        self._pending.clear()
        self._producers.settle()
        self._note()

    def remove_released(self) -> int:
        """Remove segments that every registered reader has released. Return how many; none if no reader is registered.

        Raises LedgerMismatch where a registration cannot be read, Failed.
        """
        removed = 0
        if len(self._segments) < 2:
            return removed
        with self._explained(), settled(self._storage, self._home):
            needed = min((each.next for each in registrations(self._storage, self._home)), default=0)
            while len(self._segments) > 1 and self._segments[1].first <= needed and self._is_old(self._segments[1]):
                self._remove(self._segments.pop(0))
                removed += 1
        return removed

    def close(self) -> None:
        """Release files and locks. What was appended and not committed is forgotten."""
        for file in (*self._files, *filter(None, (self._note_file,))):
            with suppress(OSError):
                file.close()
        self._files.clear()
        self._note_file = None
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    # --- steps

    def _append(self, event: Event) -> Receipt:
        sequence, now_us = self._next, self._now_us()
        seed = self._segments[-1].seed
        self._pending.append(encode_frame(event, sequence=sequence, durable=self._durable, received_at_us=now_us, seed=seed))
        self._next += 1
        if event.producer is not None and event.number is not None:
            self._producers.note(event.producer, Numbered(number=event.number, sequence=sequence, received_at_us=now_us))
        return Receipt(sequence)

    def _require_room(self, events: Sequence[Event]) -> None:
        """Raise JournalFull before a limit is passed."""
        more = sum(map(size_of, events))
        limits = self._limits
        if self._size + more > limits.most_bytes and (not self.remove_released() or self._size + more > limits.most_bytes):
            raise JournalFull(
                f"The journal {self._home} has {self._size} bytes, and may have {limits.most_bytes}.",
                remedy="Let its readers deliver, or allow more; `penstock journal readers` shows who is behind.",
            )
        age_us = self._now_us() - self._segments[0].header.created_at_us
        if limits.oldest_us is not None and age_us > limits.oldest_us and len(self._segments) > 1 and not self.remove_released():
            raise JournalFull(
                f"The journal {self._home} has events that wait for {age_us // 1_000_000} s, and may keep them for "
                f"{limits.oldest_us // 1_000_000} s.",
                remedy="Let its readers deliver, or allow more; `penstock journal readers` shows who is behind.",
            )
        for place in self._homes:
            is_full = self._storage.free_bytes(place) < limits.least_free_bytes + more
            if is_full and (not self.remove_released() or self._storage.free_bytes(place) < limits.least_free_bytes + more):
                raise JournalFull(
                    f"The disk of {place} has less than {limits.least_free_bytes} bytes free.", remedy="Make room on it."
                )

    def _is_old(self, behind: Segment) -> bool:
        """Whether the segment before `behind` may go by its age: its last event is about as old as `behind`."""
        return not self._limits.keep_us or self._now_us() - behind.header.created_at_us >= self._limits.keep_us

    def _remove(self, segment: Segment) -> None:
        size = self._storage.size(segment.path)
        for place in self._homes:
            path = segment_path(place, segment.first)
            with REMOVE.around(error=io_error, lost=io_error):
                for each in (index_path(path), path):
                    if each.name in self._storage.names(each.parent):
                        self._storage.remove(each)
            self._storage.sync_directory(path.parent)
        self._size -= size

    def _open(self) -> None:
        for place in self._homes:
            for part in (SEGMENTS, READERS):
                self._storage.make_directory(place / part)
            self._locks.append(self._storage.lock(place / LOCK))
        found = [recover(self._storage, place) for place in self._homes]
        if len(found) > 1 and any(found):
            level(self._storage, *self._homes)
            found = [recover(self._storage, place) for place in self._homes]
        if found[0] is None:
            self._begin_segment(journal_id=new_nonce())
        else:
            self._continue(found[0])
        self._require_readers_served()
        self._note()

    def _continue(self, found: Recovered) -> None:
        self._segments, self._producers = list(found.segments), found.producers
        self._next = self._durable = found.next
        self._offset, self._checksum, self._places = found.size, found.checksum, list(found.places)
        self._size = sum(self._storage.size(segment.path) for segment in self._segments)
        for place in self._homes:
            file = self._storage.open(segment_path(place, self._segments[-1].first))
            file.seek(found.size)
            self._files.append(file)

    def _require_readers_served(self) -> None:
        """Raise JournalDamaged if a reader planned events that are not there: their numbers would be given away again."""
        for each in registrations(self._storage, self._home):
            if each.planned > self._next:
                raise JournalDamaged(
                    f"Reader {each.reader!r} has events up to {each.planned - 1}, and the journal {self._home} ends with "
                    f"{self._next - 1}.",
                    remedy="Restore its files from the copy of the journal or a backup.",
                )

    def _begin_segment(self, *, journal_id: str | None = None) -> None:
        """Seal the newest segment and begin another one; nothing is pending in it yet."""
        sealed = self._segments[-1] if self._segments else None
        now_us = self._now_us()
        header = SegmentHeader(
            journal_id=journal_id or (sealed.header.journal_id if sealed is not None else ""),
            first=self._durable,
            created_at_us=now_us,
            producers=self._producers.durable,
        )
        data = encode_header(header)
        files = [self._created(segment_path(place, header.first), data) for place in self._homes]
        for file in self._files:
            file.close()
        self._files = files
        if sealed is not None:
            self._write_index(sealed)
        self._segments.append(Segment(path=segment_path(self._home, header.first), header=header, begin=len(data)))
        self._offset, self._checksum, self._places = len(data), zlib.crc32(data), []
        self._size += len(data)

    def _created(self, path: Path, header: bytes) -> JournalFile:
        with CREATE.around(error=_full_disk, lost=io_error):
            file = self._storage.create(path)
            file.write(header)
            file.sync()
            self._storage.sync_directory(path.parent)
        return file

    def _write_index(self, sealed: Segment) -> None:
        index = SegmentIndex(
            journal_id=sealed.header.journal_id,
            first=sealed.first,
            end=self._durable,
            size_bytes=self._offset,
            checksum=self._checksum,
            places=tuple(self._places),
        )
        for place in self._homes:
            write_index(self._storage, Segment(path=segment_path(place, sealed.first), header=sealed.header, begin=0), index)

    def _write(self, data: bytes) -> None:
        for file in self._files:
            with WRITE.around(error=_full_disk, lost=io_error):
                WRITE.write(file, data)
        for file in self._files:
            with SYNC.around(error=io_error, lost=io_error):
                file.sync()  # I1: before it returns nobody is told

    def _note(self) -> None:
        """Tell readers what is durable. Should the note be lost, they see it with the next one."""
        note = encode_note(DurableNote(next=self._durable, segment=self._segments[-1].first, offset=self._offset))
        with self._explained(), NOTE_DURABLE.around(error=io_error, lost=io_error):
            if self._note_file is None:
                path, is_new = self._home / NOTE, NOTE not in self._storage.names(self._home)
                self._note_file = self._storage.create(path) if is_new else self._storage.open(path)
            self._note_file.seek(0)
            self._note_file.write(note)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error_for(error) from error

    def _error_for(self, error: OSError) -> PenstockError:
        problem = problem_of(error)
        message = f"The journal {self._home} could not be written: {problem.reason}. What was waiting is not acknowledged."
        if error.errno in FULL_DISK:
            return JournalFull(message, remedy=f"{problem.advice}; events are taken again then.")
        return Failed(message, remedy=f"{problem.advice}, then start again: the start reads what is there.")


def _require_fit(event: Event) -> None:
    """Raise Usage for what a frame cannot hold."""
    size = size_of(event)
    if size > LARGEST_EVENT:
        raise Usage(f"An event has {size} bytes, expected at most {LARGEST_EVENT}.", remedy="Send less in one event.")
    names = [name for name in (event.producer, event.remote) if name is not None]
    if any(len(name.encode()) > _LONGEST_NAME for name in names):
        raise Usage(f"The name of a producer has more than {_LONGEST_NAME} bytes.", remedy="Give it a shorter name.")
    if any(len(name.encode()) > _LONGEST_HEADER for name, _ in event.headers):
        raise Usage(f"The name of a header has more than {_LONGEST_HEADER} bytes.", remedy="Give it a shorter name.")
    if event.number is not None and not (event.producer and FIRST_NUMBER <= event.number < 1 << 63):
        raise Usage(
            f"An event has a number of no producer, or one that is not {FIRST_NUMBER} to 2^63 - 1.",
            remedy=f"Name the producer, and count from {FIRST_NUMBER}.",
        )


def _full_disk(point: str) -> OSError:
    return OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} at {point}")
