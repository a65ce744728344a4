"""Checksum files of Hadoop's local file system: `.NAME.crc` has a header and the CRC-32 of every 512 bytes of `NAME`."""

import struct
import zlib
from functools import cache

import numpy as np
import numpy.typing as npt

_MAGIC = b"crc\0"
_HEADER = struct.Struct(">4si")
_CHUNK_BYTES = 512
_FEW_BYTES = 1 << 16
_POLYNOMIAL = 0xEDB88320
_Sums = npt.NDArray[np.uint32]


def checksum_name(name: str) -> str:
    """Return the name of a file's checksum file: `offsets/.3.crc` for `offsets/3`."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}.crc"


def matches(data: bytes, checksum: bytes) -> bool:
    """Return whether `data` matches the content of its checksum file."""
    if len(data) > _FEW_BYTES:
        return crc32_in(checksum, size_bytes=len(data)) == zlib.crc32(data)
    chunk_bytes = _chunk_bytes(checksum)
    return chunk_bytes is not None and checksum[_HEADER.size :] == _sums(data, chunk_bytes)


def checksum_file(data: bytes) -> bytes:
    """Return the content of the checksum file of `data`, as Hadoop's local file system writes it."""
    return _HEADER.pack(_MAGIC, _CHUNK_BYTES) + _sums(data, _CHUNK_BYTES)


def is_whole_checksum(checksum: bytes) -> bool:
    """Return whether a checksum file of Hadoop is complete in itself, whatever it says of its file."""
    whole_chunks = len(checksum) > _HEADER.size and len(checksum) % 4 == 0
    return whole_chunks and _HEADER.unpack_from(checksum) == (_MAGIC, _CHUNK_BYTES)


def crc32_in(checksum: bytes, *, size_bytes: int) -> int | None:
    """Return the CRC-32 of a whole file of that size by its checksum file, None if it is one of another size, or none.

    That of two parts follows from theirs and the length of the second, as in zlib's `crc32_combine`. A large table of state has
    millions of parts: so each second one is joined with its neighbour, all at once, until one is left.
    """
    chunk_bytes = _chunk_bytes(checksum)
    if chunk_bytes is None or len(checksum) != _HEADER.size + 4 * -(-size_bytes // chunk_bytes) or size_bytes == 0:
        return None
    sums = np.frombuffer(checksum, ">u4", offset=_HEADER.size).astype(np.uint32)
    last_bytes = size_bytes - (len(sums) - 1) * chunk_bytes
    whole, last = sums[:-1], sums[-1:]
    while len(whole) > 1:
        if len(whole) % 2:
            whole = np.concatenate([np.zeros(1, np.uint32), whole])  # that of nothing, in front
        whole = _behind(whole[0::2], chunk_bytes) ^ whole[1::2]
        chunk_bytes *= 2
    return int((_behind(whole, last_bytes) ^ last if len(whole) else last)[0])


def _chunk_bytes(checksum: bytes) -> int | None:
    if len(checksum) < _HEADER.size:
        return None
    magic, chunk_bytes = _HEADER.unpack_from(checksum)
    return chunk_bytes if magic == _MAGIC and chunk_bytes > 0 else None


def _sums(data: bytes, chunk_bytes: int) -> bytes:
    sums = [zlib.crc32(data[start : start + chunk_bytes]) for start in range(0, len(data), chunk_bytes)]
    return struct.pack(f">{len(sums)}I", *sums)


def _behind(sums: _Sums, size_bytes: int) -> _Sums:
    """Return what each checksum becomes when so many bytes follow, before theirs is added."""
    found = np.zeros_like(sums)
    for place, table in enumerate(_tables(size_bytes)):
        found ^= table[sums >> np.uint32(8 * place) & np.uint32(0xFF)]
    return found


@cache
def _tables(size_bytes: int) -> tuple[_Sums, ...]:
    """Return that change as a table for each of a checksum's bytes: it is linear over the field of two elements."""
    bytes_ = np.arange(256, dtype=np.uint32)
    return tuple(_times(_matrix(size_bytes), bytes_ << np.uint32(8 * place)) for place in range(4))


@cache
def _matrix(size_bytes: int) -> _Sums:
    """Return the same as a matrix: what becomes of each bit."""
    if size_bytes == 0:
        return np.array([1 << bit for bit in range(32)], dtype=np.uint32)
    if size_bytes % 2 == 0:
        half = _matrix(size_bytes // 2)
        return _times(half, half)
    return _times(_one_byte(), _matrix(size_bytes - 1))


@cache
def _one_byte() -> _Sums:
    columns = _matrix(0)
    for _ in range(8):
        columns = (columns >> np.uint32(1)) ^ (columns & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    return columns


def _times(matrix: _Sums, vectors: _Sums) -> _Sums:
    result = np.zeros_like(vectors)
    for bit in range(32):
        result ^= np.where(vectors >> np.uint32(bit) & np.uint32(1), matrix[bit], np.uint32(0))
    return result
