"""Objects of a store as files: read as seekable files that read ahead, and written in parts, invisible until completed."""

import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import BinaryIO, TypeAlias, cast

from penstock.blob.store import BlobStore
from penstock.core.faults import FaultPoint
from penstock.errors import PenstockError, Retryable, StageFailed

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

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        length = min(len(buffer), self._size_bytes - self._position)
        if length <= 0:
            return 0
        data = self._read(self._position, length)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


BEGIN = FaultPoint("object.stage.begin", "A task begins an upload.")
PART = FaultPoint("object.stage.part", "A task uploads one part of a file.")

_THREADS = 8


class PartedUpload:
    """One object while it is written: in memory while it is small, then uploaded in parts. Used by one thread.

    Errors of the store are raised, those of a part possibly by a later call.
    """

    def __init__(self, store: BlobStore, key: str, *, tag: str) -> None:
        self._store, self._key, self._tag = store, key, tag
        self._unsent = bytearray()
        self._parts: list[Future[str]] = []
        self._is_abandoned = False
        self.size_bytes = 0
        self.name: str | None = None
        """The store's name of the upload, None before the first part."""

    def write(self, data: bytes) -> int:
        """Append bytes; wait where the store is slower than the caller. After `abandon` they are thrown away."""
        self.size_bytes += len(data)
        if not self._is_abandoned:
            self._unsent += data
            if len(self._unsent) >= self._store.part_bytes:
                self._send()
        return len(data)

    def flush(self) -> None:
        """Do nothing: a part is sent when it is whole."""

    def unsent(self) -> bytes:
        """Return what no part has yet: everything, before the first one."""
        return bytes(self._unsent)

    def parts(self) -> list[str]:
        """Send the rest, wait for all parts and return their ids for `BlobStore.complete`."""
        if self._unsent:
            self._send()
        return [part.result() for part in self._parts]

    def abandon(self) -> None:
        """Start no further part. One may be in progress, so the parts are left to a sweep."""
        self._is_abandoned = True
        self._unsent.clear()
        for part in self._parts:
            part.cancel()

    def _send(self) -> None:
        """Upload a part in the background. The first one begins the upload."""
        data = self.unsent()
        self._unsent.clear()
        if self.name is None:
            with BEGIN.around():
                self.name = self._store.begin(self._key, tag=self._tag)
        if len(self._parts) >= self._store.parts_at_once:
            self._parts[-self._store.parts_at_once].result()
        self._parts.append(_pool(os.getpid()).submit(self._put_part, self.name, len(self._parts), data))

    def _put_part(self, upload: str, number: int, data: bytes) -> str:
        with PART.around():
            return self._store.put_part(self._key, upload, number, data)


@contextmanager
def staging() -> Iterator[None]:
    """Raise the store's errors inside a task as StageFailed, or as Retryable if the store does not answer."""
    try:
        yield
    except StageFailed:
        raise
    except Retryable as error:  # a lost answer, too: nothing is known to be wrong, and the next attempt has names of its own
        raise Retryable(f"Staging failed. {error.message}", remedy="Start again: nothing is lost.") from error
    except PenstockError as error:
        raise StageFailed(f"Staging failed. {error.message}", remedy=error.remedy) from error


@cache
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked child must not use its parent's threads
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-upload")
