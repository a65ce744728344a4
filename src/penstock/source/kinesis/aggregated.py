"""Takes records apart that the Kinesis Producer Library (KPL) put together: several records of a user in one of Kinesis.

The format is the library's own (KPL, aggregation-format.md): four fixed bytes, a message of Protocol Buffers, and the MD5 of that
message. As Amazon's client library does it, a record is left out whole if one of the records in it has another shard's hash key:
the producer then saw that it went to the wrong shard, and sent its records again.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from penstock.source.kinesis.shard import Hashes, Record

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16
_KEYS, _HASH_KEYS, _RECORDS = 1, 2, 3
"""Fields of the message: partition keys, explicit hash keys, and records, which name both by number."""
_KEY, _HASH_KEY, _DATA = 1, 2, 3
"""Fields of one of its records."""
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


class UserRecord(NamedTuple):
    """One record of a user. `place`: its place in the record of Kinesis, 0 for one that stands alone."""

    key: str
    data: bytes
    place: int
    record: Record


class _NoMessage(Exception):
    """Bytes are no such message."""


def user_records(record: Record, hashes: Hashes) -> Iterator[UserRecord]:
    """Yield the records in `record`, or itself if nothing was put together there."""
    body = record.data[len(_MAGIC) : -_DIGEST]
    is_plain = not record.data.startswith(_MAGIC) or len(record.data) <= len(_MAGIC) + _DIGEST
    if is_plain or hashlib.md5(body, usedforsecurity=False).digest() != record.data[-_DIGEST:]:
        yield UserRecord(record.key, record.data, 0, record)
        return
    try:
        found = _parsed(body)
    except (_NoMessage, IndexError, UnicodeDecodeError):
        yield UserRecord(record.key, record.data, 0, record)
        return
    first, last = hashes
    if all(first <= hash_key <= last for _, _, hash_key in found):
        yield from (UserRecord(key, data, place, record) for place, (key, data, _) in enumerate(found))


def _parsed(body: bytes) -> list[tuple[str, bytes, int]]:
    """Return key, data and hash key of each record."""
    keys, hash_keys, records = list[str](), list[int](), list[dict[int, int | bytes]]()
    for number, value in _fields(body):
        if not isinstance(value, bytes):
            continue
        if number == _KEYS:
            keys.append(value.decode())
        elif number == _HASH_KEYS:
            hash_keys.append(_number(value))
        elif number == _RECORDS:
            records.append(dict(_fields(value)))
    return [_record(each, keys, hash_keys) for each in records]


def _record(fields: dict[int, int | bytes], keys: list[str], hash_keys: list[int]) -> tuple[str, bytes, int]:
    key, data, by = fields.get(_KEY, 0), fields.get(_DATA, b""), fields.get(_HASH_KEY)
    if not isinstance(key, int) or not isinstance(data, bytes) or isinstance(by, bytes):
        raise _NoMessage
    name = keys[key]
    hashed = int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest(), "big") if by is None else hash_keys[by]
    return name, data, hashed


def _number(text: bytes) -> int:
    if not text.isdigit():
        raise _NoMessage
    return int(text)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message of Protocol Buffers by number."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in {_FIXED_32, _FIXED_64}:
            size = 4 if kind == _FIXED_32 else 8
        else:
            raise _NoMessage
        if at + size > len(message):
            raise _NoMessage
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
