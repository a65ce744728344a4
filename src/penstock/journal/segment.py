"""Segments of a journal as they are on disk: their headers, indexes and frames."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import LedgerMismatch
from penstock.journal.format import (
    HEADER_BYTES,
    LOG,
    SEGMENTS,
    SegmentHeader,
    SegmentIndex,
    decode_header,
    decode_index,
    index_path,
    segment_path,
)
from penstock.journal.frame import BadFrame, Frame, ShortFrame, decode_frame, seed_of
from penstock.journal.storage import Storage

_CHUNK = 1 << 20
_FIRST_READ = 4096
PLACES_APART = 256 << 10
"""Bytes between two places that an index notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment's file, its header, and the byte where its first frame begins."""

    path: Path
    header: SegmentHeader
    begin: int

    @property
    def first(self) -> int:
        return self.header.first

    @property
    def seed(self) -> int:
        return seed_of(self.header.journal_id)


@dataclass(frozen=True, slots=True)
class Located:
    """A frame and the byte of its segment where it begins."""

    frame: Frame
    offset: int
    segment: Segment

    @property
    def end(self) -> int:
        """The byte behind the frame."""
        return self.offset + self.frame.size


class TornFrame(Exception):
    """A segment ends, or is damaged, at `offset`, where event `sequence` should begin."""

    def __init__(self, offset: int, sequence: int, found: str) -> None:
        super().__init__(found)
        self.offset, self.sequence, self.found = offset, sequence, found


def segment_firsts(storage: Storage, home: Path) -> list[int]:
    """Return the first sequence numbers of the segments that are there, in order, by the names of their files."""
    stems = (name.removesuffix(LOG) for name in storage.names(home / SEGMENTS) if name.endswith(LOG))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def open_segment(storage: Storage, home: Path, first: int) -> Segment:
    """Return the segment that begins with event `first`. Raises LedgerMismatch, FormatTooNew, OSError."""
    path = segment_path(home, first)
    line = storage.read(path, 0, _FIRST_READ)
    if b"\n" not in line:
        line = storage.read(path, 0, HEADER_BYTES)
    line = line[: line.find(b"\n") + 1]
    header = decode_header(line, where=str(path))
    if header.first != first:
        raise LedgerMismatch(
            f"The segment {path} begins with event {header.first} by its header, and with {first} by its name.",
            remedy="Give it back the name that it had.",
        )
    return Segment(path=path, header=header, begin=len(line))


def read_index(storage: Storage, segment: Segment) -> SegmentIndex | None:
    """Return the index beside a segment, None if there is no whole one of this segment."""
    try:
        index = decode_index(storage.read(index_path(segment.path)), where=str(index_path(segment.path)))
    except (FileNotFoundError, LedgerMismatch):
        return None
    is_own = (index.journal_id, index.first) == (segment.header.journal_id, segment.first)
    return index if is_own else None


def place_of(storage: Storage, segment: Segment, sequence: int) -> tuple[int, int]:
    """Return an event at or before `sequence` and the byte where it begins: the nearest one that is known."""
    index = read_index(storage, segment)
    places = () if index is None else index.places
    nearest = bisect_right(places, (sequence, 1 << 62)) - 1
    return places[nearest] if nearest >= 0 else (segment.first, segment.begin)


def scan(
    storage: Storage, segment: Segment, *, sequence: int | None = None, offset: int | None = None, until: int | None = None
) -> Iterator[Located]:
    """Yield the frames of `segment` from event `sequence` on, which begins at byte `offset` (default: the first), below `until`.

    Ends where the file ends between two frames. Raises TornFrame.
    """
    expected = segment.first if sequence is None else sequence
    start = segment.begin if offset is None else offset
    data, at = b"", 0
    while until is None or expected < until:
        try:
            frame = decode_frame(data, at, seed=segment.seed)
        except ShortFrame as short:
            more = storage.read(segment.path, start + len(data), max(_CHUNK, len(data) - at))
            if not more and at == len(data):
                return
            if not more:
                raise TornFrame(start + at, expected, str(short)) from short
            start, data, at = start + at, data[at:] + more, 0
            continue
        except BadFrame as bad:
            raise TornFrame(start + at, expected, str(bad)) from bad
        if frame.record.sequence != expected:
            raise TornFrame(start + at, expected, f"event {frame.record.sequence}")
        yield Located(frame, start + at, segment)
        expected += 1
        at += frame.size
