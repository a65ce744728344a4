"""Checksum files of Hadoop: of small files part by part, of large ones by that of the whole."""

import random
import struct
import zlib

import pytest

from penstock.checkpoint.hadoop_checksum import checksum_file, crc32_in, matches

SIZES = (1, 2, 511, 512, 513, 1024, 65_536, 65_537, 100_000, 512 * 333, 512 * 4096, 3_000_017)


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_the_checksum_of_the_whole_follows_from_its_parts(size: int) -> None:
    data = content(size)
    assert crc32_in(checksum_file(data), size_bytes=size) == zlib.crc32(data)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 512, 1000, 4096])
def test_parts_may_have_any_length(chunk_bytes: int) -> None:
    data = content(100_001)
    parts = [zlib.crc32(data[at : at + chunk_bytes]) for at in range(0, len(data), chunk_bytes)]
    checksum = struct.pack(f">4si{len(parts)}I", b"crc\0", chunk_bytes, *parts)
    assert crc32_in(checksum, size_bytes=len(data)) == zlib.crc32(data)
    assert matches(data, checksum)


@pytest.mark.parametrize("size", SIZES)
def test_every_difference_is_noticed(size: int) -> None:
    data = content(size)
    checksum = checksum_file(data)
    middle = size // 2
    assert matches(data, checksum)
    assert not matches(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], checksum)
    assert not matches(data + b"\0", checksum)
    assert not matches(data[:-1], checksum)
    for wrong in (checksum[:-1], checksum[:-4], checksum + b"\0", checksum + b"\0\0\0\0", b"x" + checksum[1:], checksum[:7], b""):
        assert not matches(data, wrong)


def test_two_parts_that_changed_places_are_noticed() -> None:
    data = content(100_000)
    assert not matches(data[512:1024] + data[:512] + data[1024:], checksum_file(data))
