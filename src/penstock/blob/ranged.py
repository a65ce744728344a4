"""An object as a seekable file that reads what is asked for, and a little more."""

import io
from typing import BinaryIO, cast

from penstock.blob.store import BlobStore

_AHEAD_BYTES = 1 << 20


def open_object(store: BlobStore, key: str) -> BinaryIO:
    """The object as it is now, for reading; used by one thread. Raises FileNotFoundError."""
    found = store.look(key)
    if found is None:
        raise FileNotFoundError(f"{store.url}/{key}")
    return cast("BinaryIO", io.BufferedReader(_Ranged(store, key, found.size_bytes), _AHEAD_BYTES))


class _Ranged(io.RawIOBase):
    def __init__(self, store: BlobStore, key: str, size_bytes: int) -> None:
        self._store, self._key, self._size_bytes = store, key, size_bytes
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
        data = self._store.read(self._key, start=self._position, length=length)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
