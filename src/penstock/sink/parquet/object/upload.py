"""The task side of an account on an object store: uploads parts of a file while it is being written."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.blob import BlobStore
from penstock.blob.request_counter import requests_to
from penstock.blob.upload import PartedUpload, staging
from penstock.sink.parquet.account import Allowance, Finished, Upload
from penstock.sink.parquet.object.layout import tag_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectUploads:
    """Files on their way into one account."""

    store: BlobStore

    def open(self, name: str, *, allowance: Allowance) -> "ObjectUpload":
        """Begin a file. Nothing is sent before it is known to be large."""
        return ObjectUpload(self.store, name, allowance=allowance)

    def seal(self) -> None:
        """Do nothing: every part was acknowledged."""

    def requests_sent(self) -> Mapping[str, int]:
        return {self.store.url: requests_to(self.store.url)}


class ObjectUpload(Upload):
    """One file: in memory while it is small, then in parts."""

    def __init__(self, store: BlobStore, name: str, *, allowance: Allowance) -> None:
        self._store = store
        self._name = name
        self._allowance = allowance
        self.size_bytes = 0
        self._held = bytearray()
        self._upload = PartedUpload(store, name, tag=tag_of(name))
        self._abandoned = False

    def write(self, data: bytes) -> int:
        """Append bytes; wait if the store is slower than the writer. Raises StageFailed."""
        if not self._abandoned:
            self._held += data
            if len(self._held) >= self._store.part_bytes:
                self._send()
        self.size_bytes += len(data)
        return len(data)

    def finish(self) -> Finished:
        """Send the rest and wait for all parts, or return a small file's bytes. Raises StageFailed.

        A store that accepts a put however late it arrives gets uploads only: publishing must consume them.
        """
        if self._abandoned:
            raise AssertionError(f"{self._name} was abandoned")
        if self._upload.name is None and self._store.dates_requests and self._allowance.take(len(self._held)):
            return Finished(inline=bytes(self._held))
        if self._held:
            self._send()
        with staging():
            return Finished(ref={"upload": self._upload.name, "parts": [*self._upload.parts()]})

    def abandon(self) -> None:
        """Leave the upload to the sweep: a part may be under way."""
        self._abandoned = True
        self._held.clear()
        self._upload.abandon()

    def _send(self) -> None:
        data = bytes(self._held)
        self._held.clear()
        with staging():
            self._upload.send(data)
