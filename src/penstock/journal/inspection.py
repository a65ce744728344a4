"""What a journal holds, for people: an overview at little cost, and a check of every frame."""

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import LedgerMismatch, PenstockError, Usage
from penstock.journal.format import SEGMENTS, Registration, segment_path
from penstock.journal.readers import registrations
from penstock.journal.recovery import is_unborn, read_note
from penstock.journal.segment import Segment, TornFrame, open_segment, read_index, scan, segment_firsts
from penstock.journal.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """One segment: its first event, its bytes, when it was begun, and whether it has an index, as sealed ones do."""

    first: int
    size_bytes: int
    created_at_us: int
    is_sealed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFacts:
    """One registered reader: the first event that it still needs, and how many wait for it."""

    reader: str
    next: int
    waiting: int
    released_at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFacts:
    """A whole journal. Its durable events are `first` to `next` - 1; `next` None: its writer noted nothing whole."""

    journal: str
    journal_id: str | None
    first: int | None
    next: int | None
    size_bytes: int
    producers: int
    segments: tuple[SegmentFacts, ...]
    readers: tuple[ReaderFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of reading every frame. `events` are whole ones; `unacknowledged` bytes stand behind the last of them."""

    journal: str
    ok: bool
    events: int
    segments: int
    unacknowledged: int
    problems: tuple[str, ...]


def inspect_journal(storage: Storage, home: Path) -> JournalFacts:
    """Return what the journal holds, by its headers and notes. Raises Usage where there is none."""
    require_journal(storage, home)
    found = [each for first in segment_firsts(storage, home) if (each := _segment(storage, home, first)) is not None]
    segments, facts = [segment for segment, _ in found], tuple(facts for _, facts in found)
    note = read_note(storage, home)
    return JournalFacts(
        journal=str(home),
        journal_id=segments[-1].header.journal_id if segments else None,
        first=segments[0].first if segments else None,
        next=None if note is None else note.next,
        size_bytes=sum(each.size_bytes for each in facts),
        producers=len(segments[-1].header.producers) if segments else 0,
        segments=facts,
        readers=readers_of(storage, home),
    )


def readers_of(storage: Storage, home: Path) -> tuple[ReaderFacts, ...]:
    """Return the registered readers and how far each is behind. Raises Usage where there is no journal."""
    require_journal(storage, home)
    note = read_note(storage, home)
    end = 0 if note is None else note.next
    return tuple(_reader(each, end) for each in registrations(storage, home))


def verify_journal(storage: Storage, home: Path) -> Verified:
    """Read every frame and compare it with headers, indexes, the durable note and the readers. Changes nothing.

    May be run beside the writer: what it notes, seals, begins and removes meanwhile is no damage.
    """
    require_journal(storage, home)
    problems: list[str] = []
    claims = _claims(storage, home)  # before the frames: each of these events was there by then
    firsts = segment_firsts(storage, home)
    events, expected, torn_bytes = 0, firsts[0] if firsts else 0, 0
    for first, behind in zip(firsts, [*firsts[1:], None], strict=True):
        if first != expected:
            problems.append(f"Events {expected} to {first - 1} are missing before segment {first}.")
        try:
            end, torn = _frames(storage, home, first, problems, is_last=behind is None)
        except FileNotFoundError:
            if behind is None or first >= segment_firsts(storage, home)[0]:
                raise
            events, expected = 0, behind  # it was released and removed meanwhile, and so were those before it
            continue
        events += end - first
        expected = end
        if torn is not None and behind is None:
            torn_bytes = torn
        elif torn is not None:
            problems.append(f"Segment {first} has {torn} bytes that are no frame behind event {end - 1}.")
    whole = f"{expected - 1} is the last that is whole" if expected else "none of them is whole"
    problems += [f"Events up to {next_ - 1} were {what}, and {whole}." for what, next_ in claims if next_ > expected]
    return Verified(
        journal=str(home),
        ok=not problems,
        events=events,
        segments=len(firsts),
        unacknowledged=torn_bytes,
        problems=tuple(problems),
    )


def releasable(storage: Storage, home: Path) -> tuple[SegmentFacts, ...]:
    """Return the segments that every registered reader has released; none if no reader is registered."""
    found = inspect_journal(storage, home)
    needed = min((each.next for each in found.readers), default=0)
    behind = [each.first for each in found.segments[1:]]
    return tuple(each for each, first in zip(found.segments, behind, strict=False) if first <= needed)


def require_journal(storage: Storage, home: Path) -> None:
    """Raise Usage unless `home` is the directory of a journal."""
    names = storage.names(home)
    if SEGMENTS not in names:
        lacks = f"it has no {SEGMENTS}" if names else "it does not exist, or is empty"
        raise Usage(
            f"{home} is not the directory of a journal: {lacks}.",
            remedy="Name the directory that `journal` of `receive` names in the pipeline file.",
        )


def _reader(each: Registration, end: int) -> ReaderFacts:
    return ReaderFacts(reader=each.reader, next=each.next, waiting=max(0, end - each.next), released_at_us=each.released_at_us)


def _segment(storage: Storage, home: Path, first: int) -> tuple[Segment, SegmentFacts] | None:
    """Return a segment and what is told of it, None if it is removed, or not begun yet."""
    try:
        segment = open_segment(storage, home, first)
        size = storage.size(segment.path)
    except FileNotFoundError:
        return None
    except LedgerMismatch:
        if is_unborn(storage, home, first):
            return None
        raise
    is_sealed = read_index(storage, segment) is not None
    created_at_us = segment.header.created_at_us
    return segment, SegmentFacts(first=first, size_bytes=size, created_at_us=created_at_us, is_sealed=is_sealed)


def _frames(storage: Storage, home: Path, first: int, problems: list[str], *, is_last: bool) -> tuple[int, int | None]:
    """Return the event behind the last whole one of a segment, and the bytes behind it if they are no frame."""
    try:
        segment = open_segment(storage, home, first)
    except PenstockError as error:
        if is_last and is_unborn(storage, home, first):
            return first, storage.size(segment_path(home, first))
        problems.append(error.message)
        return first, None
    index = read_index(storage, segment)  # before the frames: one that is written meanwhile says more than was read
    end, size = segment.first, segment.begin
    try:
        for located in scan(storage, segment):
            end, size = located.frame.record.sequence + 1, located.offset + located.frame.size
    except TornFrame as torn:
        return end, storage.size(segment.path) - torn.offset
    if index is not None and (index.end, index.size_bytes) != (end, size):
        problems.append(f"Segment {first} should end before event {index.end} by its index, and ends before {end}.")
    return end, None


def _claims(storage: Storage, home: Path) -> list[tuple[str, int]]:
    """Return who says that there are events, and up to which one."""
    note = read_note(storage, home)
    claims = [("acknowledged", note.next)] if note is not None else []
    return claims + [(f"read by {each.reader!r}", each.planned) for each in registrations(storage, home)]
