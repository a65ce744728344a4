"""Frames: how an event is written into a segment, and found again. docs/PROTOCOL.md, section Journal, is normative.

    magic 4 | length u32 | CRC-32 u32 | sequence u64 | durable u64 | received at, µs i64 | number i64 |
    producer u16 | remote u16 | key i32 | headers u32 | producer, remote, key, headers, value

All numbers are little-endian. `length` counts what follows the checksum, which covers both and begins with a seed of the
journal's own: what looks like a frame inside a client's value is none. -1 (65535 for names) stands for None.
`durable` is the first sequence number that was not yet forced to the disk when the frame was written: a later frame with a
higher one proves that this one had been acknowledged.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.journal.event import LARGEST_EVENT, Event, Record

MAGIC: Final = b"\xf5Pj\x01"
_PREFIX: Final = struct.Struct("<4sII")
_LENGTH: Final = struct.Struct("<I")
_FIELDS: Final = struct.Struct("<QQqqHHiI")
_HEADER: Final = struct.Struct("<HI")
_NO_NAME: Final = 0xFFFF
SMALLEST: Final = _PREFIX.size + _FIELDS.size


class BadFrame(Exception):
    """No whole frame is at that place; the text says what was found."""


class ShortFrame(BadFrame):
    """The data ends before the frame does."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame found in a buffer: the record, what was durable when it was written, and its size in bytes."""

    record: Record
    durable: int
    size: int


def encode_frame(event: Event, *, sequence: int, durable: int, received_at_us: int, seed: int) -> bytes:
    """Return the bytes of one frame. `seed`: of the journal (`seed_of`)."""
    producer, remote = _name(event.producer), _name(event.remote)
    headers = b"".join(_HEADER.pack(len(name.encode()), len(value)) + name.encode() + value for name, value in event.headers)
    fields = _FIELDS.pack(
        sequence,
        durable,
        received_at_us,
        -1 if event.number is None else event.number,
        _NO_NAME if producer is None else len(producer),
        _NO_NAME if remote is None else len(remote),
        -1 if event.key is None else len(event.key),
        len(headers),
    )
    body = b"".join((fields, producer or b"", remote or b"", event.key or b"", headers, event.value))
    return _PREFIX.pack(MAGIC, len(body), _checksum(body, seed)) + body


def size_of(event: Event) -> int:
    """Return about how many bytes the frame of `event` takes."""
    headers = sum(_HEADER.size + len(name.encode()) + len(value) for name, value in event.headers)
    names = len(_name(event.producer) or b"") + len(_name(event.remote) or b"")
    return SMALLEST + names + len(event.key or b"") + headers + len(event.value)


def decode_frame(data: bytes, at: int, *, seed: int) -> Frame:
    """Return the frame that begins at `at`. Raises BadFrame where it is torn, damaged or none."""
    end = frame_end(data, at)
    body = data[at + _PREFIX.size : end]
    if len(body) < end - at - _PREFIX.size:
        raise ShortFrame(f"{len(data) - at} bytes of a frame of {end - at}")
    if _checksum(body, seed) != _PREFIX.unpack_from(data, at)[2]:
        raise BadFrame("a frame with a wrong checksum")
    return Frame(_record(body), _FIELDS.unpack_from(body)[1], end - at)


def frame_end(data: bytes, at: int) -> int:
    """Return where the frame at `at` ends by its length, which may be beyond `data`. Raises BadFrame."""
    if len(data) - at < _PREFIX.size:
        raise ShortFrame(f"{len(data) - at} bytes of a frame")
    magic, length, _ = _PREFIX.unpack_from(data, at)
    if magic != MAGIC or not _FIELDS.size <= length <= LARGEST_EVENT + SMALLEST:
        raise BadFrame("no frame")
    return at + _PREFIX.size + int(length)


def frames_behind(data: bytes, at: int, *, seed: int) -> Iterator[Frame]:
    """Yield whole frames at any place from `at` on: what damage left behind it."""
    while (at := data.find(MAGIC, at)) >= 0:
        try:
            frame = decode_frame(data, at, seed=seed)
        except BadFrame:
            at += 1
        else:
            yield frame
            at += frame.size


def seed_of(journal_id: str) -> int:
    """Return what the checksums of a journal begin with."""
    return zlib.crc32(journal_id.encode())


def _checksum(body: bytes, seed: int) -> int:
    return zlib.crc32(body, zlib.crc32(_LENGTH.pack(len(body)), seed))


def _name(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _record(body: bytes) -> Record:
    sequence, _, received_at_us, number, producer, remote, key, headers = _FIELDS.unpack_from(body)
    at = _FIELDS.size
    parts = []
    for length in (producer, remote, key, headers):
        taken = 0 if length in {_NO_NAME, -1} else length
        parts.append(body[at : at + taken])
        at += taken
    event = Event(
        value=body[at:],
        key=None if key < 0 else parts[2],
        headers=tuple(_headers(parts[3])),
        producer=None if producer == _NO_NAME else parts[0].decode(),
        number=None if number < 0 else number,
        remote=None if remote == _NO_NAME else parts[1].decode(),
    )
    return Record(sequence=sequence, received_at_us=received_at_us, event=event)


def _headers(data: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(data):
        name, value = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield data[at : at + name].decode(), data[at + name : at + name + value]
        at += name + value
