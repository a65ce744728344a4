"""An object uploaded in parts while it is being written, invisible until it is completed."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from penstock.blob.store import BlobStore
from penstock.core.faults import FaultPoint
from penstock.errors import Failed, PenstockError, StageFailed

BEGIN = FaultPoint("object.stage.begin", "A task begins an upload.")
PART = FaultPoint("object.stage.part", "A task uploads one part of a file.")

_THREADS = 8


class PartedUpload:
    """One upload, for one thread. Errors of the store are raised, those of a part possibly by a later call."""

    def __init__(self, store: BlobStore, key: str, *, tag: str) -> None:
        self._store, self._key, self._tag = store, key, tag
        self._parts: list[Future[str]] = []
        self.name: str | None = None
        """The store's name of the upload, None before the first part."""

    def send(self, data: bytes) -> None:
        """Upload the next part in the background; wait where the store is slower than the caller. The first call begins it."""
        if self.name is None:
            with BEGIN.around():
                self.name = self._store.begin(self._key, tag=self._tag)
        if len(self._parts) >= self._store.parts_at_once:
            self._parts[-self._store.parts_at_once].result()
        self._parts.append(_pool(os.getpid()).submit(self._put_part, self.name, len(self._parts), data))

    def parts(self) -> list[str]:
        """Wait for all parts and return their ids for `BlobStore.complete`."""
        return [part.result() for part in self._parts]

    def abandon(self) -> None:
        """Start no further part. One may be in progress, so the parts are left to a sweep."""
        for part in self._parts:
            part.cancel()

    def _put_part(self, upload: str, number: int, data: bytes) -> str:
        with PART.around():
            return self._store.put_part(self._key, upload, number, data)


@contextmanager
def staging() -> Iterator[None]:
    """Raise the store's errors inside a task as StageFailed."""
    try:
        yield
    except StageFailed:
        raise
    except PenstockError as error:
        remedy = error.remedy if isinstance(error, Failed) else "Start again: nothing of the batch was decided."
        raise StageFailed(f"Staging failed. {error.message}", remedy=remedy) from error


@cache
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked child must not use its parent's threads
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-upload")
