"""The documents of a journal: segment headers, indexes, readers' registrations, and the note of what is durable."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from penstock.core.codec.document import decode, encode_document, mismatch
from penstock.core.codec.fields import INTEGER, TEXT, DamagedError, Field, Record

SEGMENTS, READERS, LOCK, NOTE = "segments", "readers", "lock", "durable"
"""What is in the directory of a journal."""
LOG, INDEX = ".log", ".index"
HEADER_BYTES = 32 << 20
"""A segment's header, its first line, is shorter."""
_NOTE_BYTES = 169
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """What is known of a producer that numbers its events: its newest number, that event's place, and when it came."""

    number: int
    sequence: int
    received_at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The first line of a segment. `first` is the sequence number of its first event; `producers` are those before it."""

    journal_id: str
    first: int
    created_at_us: int
    producers: Mapping[str, Numbered]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndex:
    """The file beside a sealed segment: its events are `first` to `end` - 1. `places` maps some of them to their byte.

    `checksum` is the CRC-32 of the segment's bytes.
    """

    journal_id: str
    first: int
    end: int
    size_bytes: int
    checksum: int
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A reader of the journal: it needs no event below `next` any more. Segments wait for the slowest reader."""

    reader: str
    journal_id: str
    next: int
    released_at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableNote:
    """What is durable: all events below `next`, which begins at byte `offset` of the segment `segment`."""

    next: int
    segment: int
    offset: int


def _pair(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(each) is int for each in value):
        raise DamagedError("expected a sequence number and a byte")
    return (value[0], value[1])


_PLACE: Field[tuple[int, int]] = Field(list, _pair)
_NUMBERED = Record(Numbered, {"number": INTEGER, "sequence": INTEGER, "received_at_us": INTEGER})
_SEGMENT = Record(SegmentHeader, {"journal_id": TEXT, "first": INTEGER, "created_at_us": INTEGER, "producers": _NUMBERED.by_name})
_INDEX = Record(
    SegmentIndex,
    {"journal_id": TEXT, "first": INTEGER, "end": INTEGER, "size_bytes": INTEGER, "checksum": INTEGER, "places": _PLACE.listed},
)
_REGISTRATION = Record(Registration, {"reader": TEXT, "journal_id": TEXT, "next": INTEGER, "released_at_us": INTEGER})
_NOTE = Record(DurableNote, {"next": INTEGER, "segment": INTEGER, "offset": INTEGER})
_SEGMENT_FORMAT, _INDEX_FORMAT = "penstock.journal.segment", "penstock.journal.index"
_READER_FORMAT, _NOTE_FORMAT = "penstock.journal.reader", "penstock.journal.durable"


def encode_header(header: SegmentHeader) -> bytes:
    """Return the first line of a segment, with its checksum and its line feed: without both it is not whole."""
    return _checked(encode_document(_SEGMENT_FORMAT, _VERSION, _SEGMENT.fields_of(header))) + b"\n"


def decode_header(line: bytes, *, where: str) -> SegmentHeader:
    """Return the header in a segment's first line, line feed and all. Raises LedgerMismatch, FormatTooNew."""
    document = _document_in(line) if line.endswith(b"\n") else None
    if document is None:
        raise mismatch(where, DamagedError("expected a whole first line"))
    return decode(document, kind=_SEGMENT_FORMAT, where=where, readers={_VERSION: _SEGMENT.read})


def encode_index(index: SegmentIndex) -> bytes:
    """Return the bytes of the file beside a sealed segment."""
    return encode_document(_INDEX_FORMAT, _VERSION, _INDEX.fields_of(index))


def decode_index(data: bytes, *, where: str) -> SegmentIndex:
    """Return the index in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=_INDEX_FORMAT, where=where, readers={_VERSION: _INDEX.read})


def encode_registration(registration: Registration) -> bytes:
    """Return the bytes of a reader's file."""
    return encode_document(_READER_FORMAT, _VERSION, _REGISTRATION.fields_of(registration))


def decode_registration(data: bytes, *, where: str) -> Registration:
    """Return the registration in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=_READER_FORMAT, where=where, readers={_VERSION: _REGISTRATION.read})


def encode_note(note: DurableNote) -> bytes:
    """Return the note as one write, which always has the same length."""
    document = encode_document(_NOTE_FORMAT, _VERSION, _NOTE.fields_of(note))
    return _checked(document).ljust(_NOTE_BYTES) + b"\n"


def decode_note(data: bytes, *, where: str) -> DurableNote | None:
    """Return the note in `data`, None where it is not whole: it is written over and over, and never forced to the disk."""
    document = _document_in(data)
    return None if document is None else decode(document, kind=_NOTE_FORMAT, where=where, readers={_VERSION: _NOTE.read})


def _checked(document: bytes) -> bytes:
    return b"%08x %s" % (zlib.crc32(document), document)


def _document_in(data: bytes) -> bytes | None:
    """Return what `_checked` was given, None where it is not whole."""
    checksum, _, rest = data.partition(b" ")
    document = rest.rstrip()
    return document if document and checksum == b"%08x" % zlib.crc32(document) else None


def segment_path(home: Path, first: int) -> Path:
    """Return the file of the segment that begins with event `first`."""
    return home / SEGMENTS / f"{first:020d}{LOG}"


def index_path(segment: Path) -> Path:
    """Return the file of a segment's index."""
    return segment.with_suffix(INDEX)


def reader_path(home: Path, reader: str) -> Path:
    """Return the file of a reader's registration."""
    return home / READERS / f"{quote(reader, safe='')}.json"
