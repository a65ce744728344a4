"""The task side of an account on an object store: uploads parts of a file while it is being written."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.blob import BlobStore
from penstock.blob.object_file import PartedUpload, staging
from penstock.sink.parquet.account import Allowance, Finished, Upload


def tag_of(name: str) -> str:
    """Return the tag noted on the object `name`, which tells our object from any other. No two files have the same."""
    return name.rpartition("/")[2]


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
        return self.store.requests_sent()


class ObjectUpload(Upload):
    """One file: in memory while it is small, then in parts."""

    def __init__(self, store: BlobStore, name: str, *, allowance: Allowance) -> None:
        self._store, self._name, self._allowance = store, name, allowance
        self.size_bytes = 0
        self._upload = PartedUpload(store, name, tag=tag_of(name))
        self._abandoned = False

    def write(self, data: bytes) -> int:
        """Append bytes; wait if the store is slower than the writer. Raises StageFailed."""
        if not self._abandoned:
            with staging():
                self._upload.write(data)
        self.size_bytes += len(data)
        return len(data)

    def finish(self) -> Finished:
        """Send the rest and wait for all parts, or return a small file's bytes. Raises StageFailed.

        A store that accepts a put however late it arrives gets uploads only: publishing must consume them.
        """
        if self._abandoned:
            raise AssertionError(f"{self._name} was abandoned")
        if self._upload.name is None and self._store.dates_requests and self._allowance.take(self.size_bytes):
            return Finished(inline=self._upload.unsent())
        with staging():
            parts = self._upload.parts()
            return Finished(ref={"upload": self._upload.name, "parts": [*parts]})

    def abandon(self) -> None:
        """Leave the upload to the sweep: a part may be under way."""
        self._abandoned = True
        self._upload.abandon()
