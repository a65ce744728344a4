"""Reads a journal beside its writer: only events that are durable are seen, so no number ever stands for another event."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InputLost, LedgerMismatch, Retryable
from penstock.journal.event import Record
from penstock.journal.recovery import read_note
from penstock.journal.segment import Located, Segment, TornFrame, open_segment, place_of, scan, segment_firsts
from penstock.journal.storage import Storage

_READS = 10
"""Times that the note is read until it is whole: its writer writes it over in place, and a read beside that can be torn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What a journal has: events from `first` on and below `next`. Event `next` will begin at `offset` of segment `segment`."""

    journal_id: str
    first: int
    next: int
    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Place:
    """The byte of a segment where an event begins."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """Whole frames, one behind another, as they are in the segments. Event `next` follows them, at `place`."""

    data: bytes
    next: int
    place: Place


class JournalReader:
    """Reads the journal in `home`. Holds no file open. Errors of the file system are raised as they are."""

    def __init__(self, storage: Storage, home: Path) -> None:
        self._storage, self._home = storage, home

    def extent(self) -> Extent | None:
        """Return what the journal has and is durable, None before its first segment. Raises LedgerMismatch, FormatTooNew."""
        notes = (read_note(self._storage, self._home) for _ in range(_READS))
        note = next(filter(None, notes), None)
        firsts = segment_firsts(self._storage, self._home)
        if note is None or not firsts:
            return None
        first = self._segment(firsts[0])
        return Extent(
            journal_id=first.header.journal_id, first=firsts[0], next=note.next, segment=note.segment, offset=note.offset
        )

    def read(self, first: int, end: int, *, journal_id: str, at: Place | None = None) -> Iterator[Record]:
        """Yield the events from `first` on and below `end`. `at`: where `first` begins, if that is known.

        Raises InputLost where some are gone, Retryable where the journal ends before, or is another one.
        """
        for located in self.locate(first, end, journal_id=journal_id, at=at):
            yield located.frame.record

    def locate(self, first: int, end: int, *, journal_id: str, at: Place | None = None) -> Iterator[Located]:
        """Do as `read`, with the place of each frame in its segment."""
        expected = first
        for segment, begin, offset in self._parts(first, end, at):
            if segment.header.journal_id != journal_id:
                raise LedgerMismatch(
                    f"The journal in {self._home} is {segment.header.journal_id}, and {journal_id} was read before.",
                    remedy="Bring back the journal that was there.",
                )
            try:
                for located in scan(self._storage, segment, sequence=begin, offset=offset, until=end):
                    if located.frame.record.sequence == expected:
                        expected += 1
                        yield located
            except TornFrame as torn:
                raise self._ends_early(torn.sequence, end, torn.found) from torn
        if expected < end:
            raise self._ends_early(expected, end, "its end")

    def frames(self, first: int, end: int, *, journal_id: str, at: Place | None, most_bytes: int) -> Frames:
        """Return the frames of the events from `first` on and below `end` that have `most_bytes` together, one at least.

        Raises as `read`.
        """
        runs: dict[int, tuple[Path, int, int]] = {}
        size, next_, place = 0, first, at or Place(first, 0)
        for located in self.locate(first, end, journal_id=journal_id, at=at):
            size += located.frame.size
            if runs and size > most_bytes:
                break
            segment = located.segment
            _, start, _ = runs.get(segment.first, (segment.path, located.offset, 0))
            runs[segment.first] = (segment.path, start, located.end)
            next_, place = located.frame.record.sequence + 1, Place(segment.first, located.end)
        data = b"".join(self._storage.read(path, start, stop - start) for path, start, stop in runs.values())
        return Frames(data=data, next=next_, place=place)

    def place_behind(self, first: int, *, records: int | None, size: int | None, at: Place | None = None) -> tuple[int, Place]:
        """Return where a batch from event `first` on ends that has at most `records` events and about `size` bytes, one at least.

        Raises as `read`.
        """
        extent = self.extent()
        assert extent is not None
        end = extent.next if records is None else min(extent.next, first + records)
        place = Place(extent.segment, extent.offset)
        if size is None and end == extent.next:
            return end, place
        taken, reached = 0, first
        for located in self.locate(first, end, journal_id=extent.journal_id, at=at):
            taken += located.frame.size
            if size is not None and taken > size and reached > first:
                return reached, place
            reached += 1
            place = Place(located.segment.first, located.end)
        return reached, place

    def _parts(self, first: int, end: int, at: Place | None) -> Iterator[tuple[Segment, int, int]]:
        """Yield the segments that hold `first` to `end` - 1, each with an event and its byte from where on to look."""
        firsts = segment_firsts(self._storage, self._home)
        if not firsts or firsts[0] > first:
            raise InputLost(
                f"Event {first} of the journal {self._home}, which was not delivered, is gone: "
                f"{f'the first is {firsts[0]}' if firsts else 'there is no segment'}.",
                remedy="Restore the segments (*.log) from the copy of the journal or a backup.",
            )
        for begin, behind in zip(firsts, [*firsts[1:], end], strict=True):
            if behind > first and begin < end:
                segment = self._segment(begin)
                if at is not None and begin <= first and at.segment == begin:
                    yield segment, first, at.offset
                elif begin <= first:
                    yield segment, *place_of(self._storage, segment, first)
                else:
                    yield segment, begin, segment.begin

    def _segment(self, first: int) -> Segment:
        return open_segment(self._storage, self._home, first)

    def _ends_early(self, sequence: int, end: int, found: str) -> Retryable:
        return Retryable(
            f"The journal {self._home} should have events up to {end - 1}; at event {sequence} it has {found}.",
            remedy="Start the receiver, which checks the journal; `penstock journal verify` says what is wrong.",
        )
