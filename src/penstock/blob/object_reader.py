"""Objects of a store as seekable files that read ahead by at most one buffer."""

import io
from collections.abc import Callable
from typing import BinaryIO, TypeAlias, cast

from penstock.blob.store import BlobStore

Read: TypeAlias = Callable[[int, int], bytes]
"""Takes start and length, and returns at most that many bytes."""

_AHEAD_BYTES = 1 << 20


def open_object(store: BlobStore, key: str) -> BinaryIO:
    """Return the object as it is now, opened for reading by one thread. Raises FileNotFoundError."""
    found = store.head(key)
    if found is None:
        raise FileNotFoundError(f"{store.url}/{key}")
    return open_ranged(lambda start, length: store.read(key, start=start, length=length), found.size_bytes)


def open_ranged(read: Read, size_bytes: int) -> BinaryIO:
    """Return what `read` reads as a file, opened for reading by one thread."""
    return cast("BinaryIO", io.BufferedReader(_Ranged(read, size_bytes), _AHEAD_BYTES))


class _Ranged(io.RawIOBase):
    def __init__(self, read: Read, size_bytes: int) -> None:
        self._read, self._size_bytes = read, size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        length = min(len(buffer), self._size_bytes - self._position)
        if length <= 0:
            return 0
        data = self._read(self._position, length)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
