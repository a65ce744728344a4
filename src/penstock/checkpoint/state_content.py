"""Checks the content of state files: compressed blocks, RocksDB's zip files and tables. Rows are not decoded."""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping

import google_crc32c
import pyarrow as pa
import xxhash

from penstock.checkpoint.entries import Unreadable
from penstock.core.model import Json

_BLOCK = struct.Struct("<8sBIII")
"""Header of a block in a file of lz4-java: magic, method and level, compressed and original size, checksum."""
_LZ4 = b"LZ4Block"
_SEED = 0x9747B28C
_RAW = 0x10
_OTHER_CODECS = (b"\x28\xb5\x2f\xfd", b"\x82SNAPPY\x00", b"ZV")
"""First bytes of zstd, snappy and lzf, which `spark.sql.streaming.stateStore.compression.codec` can name."""
_TABLE_END = 0x88E241B785F4CFF7.to_bytes(8, "little")
_ENDED = b"\xff\xff\xff\xff"
"""The key size that ends a delta, snapshot or changelog."""


def require_whole(name: str, data: bytes) -> None:
    """Raise Unreadable if the content of a state file is damaged as far as its format tells. `name` decides on the format."""
    if name.endswith(".zip"):
        tables_in(data)
    elif name.endswith(".sst"):
        if data[-8:] != _TABLE_END:
            raise Unreadable("is no whole table of RocksDB")
    elif not data.startswith(_OTHER_CODECS) and decompressed(data)[-4:] != _ENDED:
        raise Unreadable("ends before its last row")


def decompressed(data: bytes) -> bytes:
    """Return the content of a file in the format of lz4-java. Raises Unreadable."""
    blocks: list[bytes] = []
    at = 0
    while at < len(data):
        if len(data) < at + _BLOCK.size:
            break
        magic, token, packed, size, checksum = _BLOCK.unpack_from(data, at)
        if magic != _LZ4:
            raise Unreadable("holds something else than compressed blocks")
        at += _BLOCK.size
        if size == 0:
            if at != len(data):
                raise Unreadable("goes on behind its end")
            return b"".join(blocks)
        blocks.append(_block(data[at : at + packed], token, size, checksum))
        at += packed
    raise Unreadable("is cut off" if data else "is empty")


def _block(packed: bytes, token: int, size: int, checksum: int) -> bytes:
    if size > 1 << 10 + (token & 0x0F) or len(packed) > 2 * size + 64:
        raise Unreadable("has a block of an impossible size")
    try:
        block = packed if token & 0xF0 == _RAW else bytes(pa.decompress(packed, size, codec="lz4_raw", asbytes=True))
    except (OSError, ValueError):
        raise Unreadable("has a block that cannot be decompressed") from None
    if len(block) != size or xxhash.xxh32_intdigest(block, _SEED) & 0xFFFFFFF != checksum:
        raise Unreadable("has a block that does not match its checksum")
    return block


_ZIP_FAILURES = (zipfile.BadZipFile, KeyError, OSError, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError)


def tables_in(data: bytes) -> Mapping[str, int]:
    """Return the RocksDB tables that a `V.zip` refers to, by name below `SSTs/`, with their sizes. Raises Unreadable."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged = archive.testzip()
            content = archive.read("metadata") if damaged is None else b""
    except _ZIP_FAILURES:
        raise Unreadable("is no whole zip file of a RocksDB snapshot") from None
    if damaged is not None:
        raise Unreadable(f"holds {damaged}, which does not match its checksum")
    manifest = _json(content.partition(b"\n")[2])
    tables = manifest.get("sstFiles") if isinstance(manifest, dict) else None
    if not isinstance(tables, list):
        raise Unreadable("holds no list of its tables")
    return {str(one["dfsSstFileName"]): int(str(one["sizeBytes"])) for one in tables if isinstance(one, dict)}


def lineage_in(changelog: bytes) -> Mapping[int, str]:
    """Return the versions before a changelog with unique ids, back to a snapshot, each with its id. Raises Unreadable."""
    content = decompressed(changelog)
    size = int.from_bytes(content[:2], "big")
    start = 2 + size
    length = int.from_bytes(content[start : start + 2], "big")
    found = _json(content[start + 2 : start + 2 + length])
    if not isinstance(found, list):
        raise Unreadable("does not list the versions before it")
    return {int(str(one["version"])): str(one["checkpointUniqueId"]) for one in found if isinstance(one, dict)}


def require_spark_checksum(data: bytes, checksum: bytes) -> None:
    """Raise Unreadable if `data` does not match the file `<name>.crc` that Spark 4.1 and newer write beside state files."""
    expected = _json(checksum)
    if not isinstance(expected, dict) or set(expected) != _CHECKSUM_FIELDS:
        raise Unreadable("has a checksum file that is cut off or changed")
    if expected.get("mainFileSize") != len(data) or expected.get("algorithm") != "CRC32C":
        raise Unreadable(f"has {len(data)} bytes, and its checksum file says {expected.get('mainFileSize')}")
    if expected.get("value") != _signed(google_crc32c.value(data)):
        raise Unreadable("does not match Spark's checksum file")


_CHECKSUM_FIELDS = {"algorithm", "value", "mainFileSize", "timestampMs", "creator"}


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _json(data: bytes) -> Json:
    try:
        value: Json = json.loads(data)
    except (ValueError, RecursionError):
        raise Unreadable("holds something that is not JSON") from None
    return value
