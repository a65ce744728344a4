"""Opens what an earlier writer left: cuts what was never acknowledged, and raises where an acknowledged event is missing."""

import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from penstock.errors import JournalDamaged, LedgerMismatch
from penstock.journal.format import (
    LOG,
    NOTE,
    DurableNote,
    Numbered,
    SegmentIndex,
    decode_note,
    encode_index,
    index_path,
    segment_path,
)
from penstock.journal.frame import MAGIC, frames_behind
from penstock.journal.producers import Producers
from penstock.journal.segment import (
    PLACES_APART,
    Located,
    Segment,
    TornFrame,
    open_segment,
    read_index,
    scan,
    segment_firsts,
)
from penstock.journal.storage import FULL_DISK, Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A journal as its last writer left it. `next` is its next sequence number; `size` and `checksum` are of the last segment."""

    segments: tuple[Segment, ...]
    next: int
    size: int
    checksum: int
    places: tuple[tuple[int, int], ...]
    producers: Producers


def recover(storage: Storage, home: Path) -> Recovered | None:
    """Return what is there, after cutting what is torn at its end; None if there is no segment yet.

    Raises JournalDamaged where an event is missing that was acknowledged, LedgerMismatch, FormatTooNew, OSError.
    """
    firsts = _without_unborn(storage, home, segment_firsts(storage, home))
    if not firsts:
        _require_nothing_noted(storage, home)
        return None
    segments = tuple(open_segment(storage, home, first) for first in firsts)
    for segment, behind in pairwise(segments):
        _seal(storage, segment, behind)
    return _opened_last(storage, home, segments)


def sealed_index(storage: Storage, segment: Segment) -> SegmentIndex:
    """Return the index of a whole segment, made from its frames. Raises JournalDamaged."""
    places: list[tuple[int, int]] = []
    end, size = segment.first, segment.begin
    try:
        for located in scan(storage, segment):
            add_place(places, located.frame.record.sequence, located.offset)
            end, size = located.frame.record.sequence + 1, located.offset + located.frame.size
    except TornFrame as torn:
        raise damaged(segment, torn) from torn
    return SegmentIndex(
        journal_id=segment.header.journal_id,
        first=segment.first,
        end=end,
        size_bytes=size,
        checksum=zlib.crc32(storage.read(segment.path, 0, size)),
        places=tuple(places),
    )


def add_place(places: list[tuple[int, int]], sequence: int, offset: int) -> None:
    """Note where an event begins, unless a place just before it is noted."""
    if not places or offset - places[-1][1] >= PLACES_APART:
        places.append((sequence, offset))


def damaged(segment: Segment, torn: TornFrame) -> JournalDamaged:
    """Return the alarm about a frame that should be whole."""
    return JournalDamaged(
        f"The journal's segment {segment.path} is damaged at byte {torn.offset}: expected event {torn.sequence}, "
        f"found {torn.found}.",
        remedy="Restore the file from the copy of the journal or a backup; what was acknowledged is never passed over.",
    )


def read_note(storage: Storage, home: Path) -> DurableNote | None:
    """Return what the journal's writer noted as durable, None if there is no whole note."""
    try:
        return decode_note(storage.read(home / NOTE), where=str(home / NOTE))
    except FileNotFoundError:
        return None


def is_unborn(storage: Storage, home: Path, first: int) -> bool:
    """Whether the newest segment has no whole header and no frame: its creation did not end, or goes on at this moment."""
    try:
        open_segment(storage, home, first)
    except LedgerMismatch:
        return MAGIC not in storage.read(segment_path(home, first))
    return False


def _without_unborn(storage: Storage, home: Path, firsts: list[int]) -> list[int]:
    """Remove a last segment whose creation did not end: no event is written before the header is on the disk."""
    if not firsts:
        return firsts
    if is_unborn(storage, home, firsts[-1]):
        path = segment_path(home, firsts[-1])
        storage.remove(path)
        storage.sync_directory(path.parent)
        return firsts[:-1]
    return firsts


def _require_nothing_noted(storage: Storage, home: Path) -> None:
    note = read_note(storage, home)
    if note is not None and note.next > 0:
        raise JournalDamaged(
            f"The journal {home} had events up to {note.next - 1}, and none of its segments is there.",
            remedy=f"Restore its files (*{LOG}) from the copy of the journal or a backup.",
        )


def _seal(storage: Storage, segment: Segment, behind: Segment) -> None:
    """Give a segment that another one follows its index. Raises JournalDamaged where events between the two are missing."""
    index = read_index(storage, segment)
    is_whole = index is not None and index.end == behind.first and index.size_bytes == storage.size(segment.path)
    if not is_whole:
        index = sealed_index(storage, segment)
        write_index(storage, segment, index)
    assert index is not None
    if segment.header.journal_id != behind.header.journal_id:
        raise LedgerMismatch(
            f"The segments {segment.path.name} and {behind.path.name} in {segment.path.parent} are of two journals.",
            remedy="Move those of the other journal away.",
        )
    if index.end != behind.first:
        raise JournalDamaged(
            f"The journal's segment {segment.path} ends before event {index.end}, and the next one begins with {behind.first}.",
            remedy="Restore its files from the copy of the journal or a backup.",
        )


def write_index(storage: Storage, segment: Segment, index: SegmentIndex) -> None:
    """Write a segment's index. It is not forced to the disk: one that is lost or torn is made again from the frames.

    So it is passed over on a full disk: the journal must open, or what is released could not be removed.
    """
    try:
        _replace_index(storage, segment, index)
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise


def _replace_index(storage: Storage, segment: Segment, index: SegmentIndex) -> None:
    path = index_path(segment.path)
    if path.name in storage.names(path.parent):
        storage.remove(path)
    file = storage.create(path)
    try:
        file.write(encode_index(index))
    finally:
        file.close()


def _opened_last(storage: Storage, home: Path, segments: tuple[Segment, ...]) -> Recovered:
    last = segments[-1]
    producers = Producers(last.header.producers)
    places: list[tuple[int, int]] = []
    end, size = last.first, last.begin
    try:
        for located in scan(storage, last):
            _take(located, producers, places)
            end, size = located.frame.record.sequence + 1, located.offset + located.frame.size
    except TornFrame as torn:
        _require_never_acknowledged(storage, last, torn)
    note = read_note(storage, home)
    if note is not None and note.next > end:
        raise JournalDamaged(
            f"The journal {home} acknowledged events up to {note.next - 1}, and {last.path.name} ends before event {end}.",
            remedy="Restore its files from the copy of the journal or a backup.",
        )
    checksum = _make_durable(storage, last, size)
    producers.settle()
    return Recovered(segments=segments, next=end, size=size, checksum=checksum, places=tuple(places), producers=producers)


def _take(located: Located, producers: Producers, places: list[tuple[int, int]]) -> None:
    record = located.frame.record
    add_place(places, record.sequence, located.offset)
    event = record.event
    if event.producer is not None and event.number is not None:
        producers.note(
            event.producer, Numbered(number=event.number, sequence=record.sequence, received_at_us=record.received_at_us)
        )


def _require_never_acknowledged(storage: Storage, last: Segment, torn: TornFrame) -> None:
    """Raise JournalDamaged if a frame behind the torn one proves that it had been durable."""
    behind = storage.read(last.path, torn.offset)
    if any(frame.durable > torn.sequence for frame in frames_behind(behind, 1, seed=last.seed)):
        raise damaged(last, torn)


def _make_durable(storage: Storage, last: Segment, size: int) -> int:
    """Cut the last segment at `size` and force it to the disk, all of it written anew. Return the checksum of its bytes.

    An fsync that failed under the last writer can leave pages that the kernel takes for clean and that are not on the disk.
    """
    data = storage.read(last.path, 0, size)
    file = storage.open(last.path)
    try:
        file.write(data)
        file.truncate(size)
        file.sync()
    finally:
        file.close()
    storage.sync_directory(last.path.parent)
    return zlib.crc32(data)
