"""The task side of an account on an object store: uploads parts of a file while it is being written."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.blob import BlobStore
from penstock.blob.object_file import PartedUpload, staging
from penstock.sink.parquet.account import Allowance, Finished, Upload, UploadArea


def tag_of(name: str) -> str:
    """Return the tag noted on the object `name`, which tells our object from any other. No two files have the same."""
    return name.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectUploads(UploadArea):
    """The task side of one account."""

    store: BlobStore

    def open(self, name: str, *, allowance: Allowance) -> "ObjectUpload":
        """Begin a file. Nothing is sent before it is known to be large."""
        return ObjectUpload(self.store, name, allowance=allowance)

    def requests_sent(self) -> Mapping[str, int]:
        return self.store.requests_sent()


class ObjectUpload(PartedUpload, Upload):
    """One file: in memory while it is small, then uploaded in parts. A sweep discards the parts of an abandoned file."""

    def __init__(self, store: BlobStore, name: str, *, allowance: Allowance) -> None:
        super().__init__(store, name, tag=tag_of(name))
        self._allowance = allowance

    def write(self, data: bytes) -> int:
        with staging():
            return super().write(data)

    def finish(self) -> Finished:
        """Send the rest and wait for all parts, or return a small file's bytes. Raises StageFailed, Retryable.

        A store that accepts a put however late it arrives gets uploads only: publishing consumes an upload, so a late repetition
        cannot bring back a file that maintenance removed.
        """
        if self._is_abandoned:
            raise AssertionError(f"{self._key} was abandoned")
        if self.name is None and self._store.dates_requests and self._allowance.take(self.size_bytes):
            return Finished(inline=self.unsent())
        with staging():
            parts = self.parts()
            return Finished(ref={"upload": self.name, "parts": [*parts]})
