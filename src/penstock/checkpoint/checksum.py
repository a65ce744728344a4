"""Hadoop's checksum files, `.NAME.crc` beside each file on a local file system. Spark writes them and never reads them."""

import struct
import zlib

_MAGIC = b"crc\0"
_HEADER = struct.Struct(">4si")


def checksum_name(name: str) -> str:
    """Return the name of a file's checksum file: `offsets/.3.crc` for `offsets/3`."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}.crc"


def matches(data: bytes, checksum: bytes) -> bool:
    """Return whether `data` matches the content of its checksum file."""
    if len(checksum) < _HEADER.size:
        return False
    magic, chunk_bytes = _HEADER.unpack_from(checksum)
    if magic != _MAGIC or chunk_bytes <= 0:
        return False
    chunks = (data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes))
    return checksum[_HEADER.size :] == b"".join(struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
