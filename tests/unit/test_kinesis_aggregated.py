"""Records that the Kinesis Producer Library put together come one by one, as Amazon's own client library takes them apart."""

import hashlib

import pytest

from penstock.source.kinesis.aggregated import user_records
from penstock.source.kinesis.shard import Record

ALL = (0, 2**128 - 1)


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def aggregated(*records: tuple[str, bytes], hash_keys: tuple[int, ...] = ()) -> bytes:
    """A record as the library writes it. `hash_keys`: explicit ones, for the records in their order."""
    body = b"".join(field(1, key.encode()) for key, _ in records)
    body += b"".join(field(2, str(key).encode()) for key in hash_keys)
    for number, (_, data) in enumerate(records):
        explicit = field(2, number) if hash_keys else b""
        body += field(3, field(1, number) + explicit + field(3, data) + field(4, field(1, b"tag")))
    return b"\xf3\x89\x9a\xc2" + body + hashlib.md5(body).digest()


def record(data: bytes) -> Record:
    return Record(number="1", key="a", data=data, arrived_ms=1)


def taken_apart(data: bytes, hashes: tuple[int, int] = ALL) -> list[tuple[str, bytes, int]]:
    return [(each.key, each.data, each.place) for each in user_records(record(data), hashes)]


def test_each_record_comes_with_its_own_key_and_place() -> None:
    large = b"x" * 70_000
    assert taken_apart(aggregated(("k", b"one"), ("é", large))) == [("k", b"one", 0), ("é", large, 1)]


@pytest.mark.parametrize(
    "data", [b"", b"plain", b"\xf3\x89\x9a\xc2", b"\xf3\x89\x9a\xc2" + b"0" * 16, aggregated(("k", b"one"))[:-1] + b"?"]
)
def test_other_records_come_as_they_are(data: bytes) -> None:
    assert taken_apart(data) == [("a", data, 0)]


@pytest.mark.parametrize("body", [b"\x0b", b"\x0a\xff\x01", b"\x1a\x02\x08\x05", b"\x0a", b"\x0a\x01\xff"])
def test_a_record_with_the_right_sum_and_no_message_in_it_comes_as_it_is(body: bytes) -> None:
    data = b"\xf3\x89\x9a\xc2" + body + hashlib.md5(body).digest()
    assert taken_apart(data) == [("a", data, 0)]


def test_a_record_that_went_to_the_wrong_shard_is_left_out_for_its_producer_sent_it_again() -> None:
    both = aggregated(("k", b"one"), ("l", b"two"), hash_keys=(5, 50))
    assert taken_apart(both, (0, 100)) == [("k", b"one", 0), ("l", b"two", 1)]
    assert taken_apart(both, (0, 49)) == []
    by_key = int.from_bytes(hashlib.md5(b"k").digest(), "big")
    assert taken_apart(aggregated(("k", b"one")), (by_key, by_key)) == [("k", b"one", 0)]
    assert taken_apart(aggregated(("k", b"one")), (by_key + 1, ALL[1])) == []
