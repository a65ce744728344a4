"""The task side of an account on an object store: parts go up while the file is being written."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from penstock.blob import BlobStore
from penstock.blob.counting import requests_to
from penstock.errors import Failed, PenstockError, StageFailed
from penstock.faults import FaultPoint
from penstock.model import Json
from penstock.sink.parquet.account import Finished
from penstock.sink.parquet.allowance import Allowance
from penstock.sink.parquet.object.layout import tag_of

BEGIN = FaultPoint("object.stage.begin", "A task begins an upload.")
PART = FaultPoint("object.stage.part", "A task uploads one part of a file.")

_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectUploads:
    """Files on their way into one account."""

    store: BlobStore

    def open(self, name: str, *, allowance: Allowance) -> "ObjectUpload":
        """Begin a file. Nothing is sent before it is known to be large."""
        return ObjectUpload(self.store, name, allowance=allowance)

    def seal(self) -> None:
        """Nothing: every part was acknowledged."""

    def requests_sent(self) -> Mapping[str, int]:
        """To the store."""
        return {self.store.url: requests_to(self.store.url)}


class ObjectUpload:
    """One file: in memory while it is small, then in parts."""

    def __init__(self, store: BlobStore, name: str, *, allowance: Allowance) -> None:
        self._store, self._name, self._allowance = store, name, allowance
        self.size_bytes = 0
        self._held = bytearray()
        self._upload: str | None = None
        self._parts: list[Future[str]] = []
        self._abandoned = False

    @property
    def closed(self) -> bool:
        """False, so that a Parquet writer that is dropped after an error finds a file; what it writes then is thrown away."""
        return False

    def write(self, data: bytes) -> int:
        """Append bytes; waits for the store where it is slower than the writer. Raises StageFailed."""
        if not self._abandoned:
            self._held += data
            if len(self._held) >= self._store.part_bytes:
                self._send()
        self.size_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing: a part is sent when it is whole."""

    def finish(self) -> Finished:
        """Send what is left and wait for all parts; a small file is handed over instead. Raises StageFailed.

        A store that takes a put however late it arrives gets uploads only: publishing must consume them.
        """
        if self._abandoned:
            raise AssertionError(f"{self._name} was abandoned")
        if self._upload is None and self._store.dates_requests and self._allowance.take(len(self._held)):
            return Finished(inline=bytes(self._held))
        if self._held:
            self._send()
        parts: list[Json] = [_answer(part) for part in self._parts]
        return Finished(ref=self._ref(parts))

    def abandon(self) -> None:
        """Leave the upload to the sweep: a part may be under way."""
        self._abandoned = True
        self._held.clear()
        for part in self._parts:
            part.cancel()

    def _ref(self, parts: list[Json]) -> Mapping[str, Json]:
        return {"upload": self._upload, "parts": parts}

    def _send(self) -> None:
        data = bytes(self._held)
        self._held.clear()
        if self._upload is None:
            self._upload = self._begin()
        if len(self._parts) >= self._store.parts_at_once:
            _answer(self._parts[-self._store.parts_at_once])
        self._parts.append(_pool(os.getpid()).submit(self._put_part, self._upload, len(self._parts), data))

    def _begin(self) -> str:
        try:
            with BEGIN.around():
                return self._store.begin(self._name, tag=tag_of(self._name))
        except PenstockError as trouble:
            raise _failed(trouble) from trouble

    def _put_part(self, upload: str, number: int, data: bytes) -> str:
        with PART.around():
            return self._store.put_part(self._name, upload, number, data)


def _answer(part: "Future[str]") -> str:
    try:
        return part.result()
    except PenstockError as trouble:
        raise _failed(trouble) from trouble


def _failed(trouble: PenstockError) -> StageFailed:
    remedy = trouble.remedy if isinstance(trouble, Failed) else "Start again: nothing of the batch was decided."
    return StageFailed(f"Staging failed. {trouble.message}", remedy=remedy)


@cache
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked child must not use its parent's threads
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-upload")
