"""A spool on an object store or HDFS: each piece is one object, which appears when its attempt has written all of it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from penstock.blob import BlobStore, Pending
from penstock.blob.object_reader import open_object
from penstock.blob.request_counter import requests_to
from penstock.blob.upload import PartedUpload
from penstock.errors import OutcomeUnknown
from penstock.sink.spool.place import ID_SUFFIX, Spooled


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPlace:
    """The spool objects of one sink, below `folder`, which ends with a slash."""

    store: BlobStore
    folder: str

    @property
    def where(self) -> str:
        return f"{self.store.url}/{self.folder}".rstrip("/")

    @property
    def sharing(self) -> str:
        return "Let tasks reach the same store as the driver: with the same endpoint, and the same account."

    @property
    def is_remote(self) -> bool:
        return True

    def identities(self) -> Sequence[str]:
        return [spooled.name for spooled in self._objects() if spooled.name.endswith(ID_SUFFIX)]

    def identify(self, name: str) -> None:
        self.store.put(self.folder + name, b"", tag=name)

    def holds(self, name: str) -> bool:
        return self.store.head(self.folder + name) is not None

    def create(self, name: str) -> "ObjectFile":
        return ObjectFile(self.store, self.folder + name)

    def open(self, name: str) -> BinaryIO:
        return open_object(self.store, self.folder + name)

    def spooled(self) -> Iterator[Spooled]:
        yield from self._objects()
        for pending in self.store.pending(self.folder):
            yield Spooled(name=pending.key.removeprefix(self.folder), size_bytes=pending.size_bytes, upload=pending.upload)

    def remove(self, spooled: Spooled) -> None:
        key = self.folder + spooled.name
        if spooled.upload is None:
            self.store.delete(key)
        else:
            self.store.discard(Pending(key=key, upload=spooled.upload))

    def requests_sent(self) -> Mapping[str, int]:
        return {self.store.url: requests_to(self.store.url)}

    def _objects(self) -> Iterator[Spooled]:
        for found in self.store.list(self.folder):
            yield Spooled(name=found.key.removeprefix(self.folder), size_bytes=found.size_bytes)


class ObjectFile:
    """A `PieceFile` in a store: one put if it is small, else an upload in parts. Attempts never share a key."""

    def __init__(self, store: BlobStore, key: str) -> None:
        self._store, self._key = store, key
        self._tag = key.rpartition("/")[2]
        self._upload = PartedUpload(store, key, tag=self._tag)
        self._held = bytearray()
        self._size_bytes = 0

    def write(self, data: bytes) -> int:
        """Append bytes; wait if the store is slower than the writer."""
        self._held += data
        self._size_bytes += len(data)
        if len(self._held) >= self._store.part_bytes:
            self._send()
        return len(data)

    def flush(self) -> None:
        """Do nothing: a part is sent when it is whole."""

    def finish(self) -> None:
        """Write the rest, then look for the object, however the store answered. Raises OutcomeUnknown if it is not there."""
        with suppress(OutcomeUnknown):
            self._place()
        found = self._store.head(self._key)
        if found is None or (found.size_bytes, found.tag) != (self._size_bytes, self._tag):
            raise OutcomeUnknown(
                f"{self._store.url}/{self._key} was written with {self._size_bytes} bytes, but what is there is {found}.",
                remedy="Start again.",
            )

    def drop(self) -> None:
        self._held.clear()
        self._upload.abandon()

    def _place(self) -> None:
        if self._upload.name is None:
            self._store.put(self._key, bytes(self._held), tag=self._tag)
            return
        if self._held:
            self._send()
        self._store.complete(self._key, self._upload.name, self._upload.parts(), tag=self._tag)

    def _send(self) -> None:
        data = bytes(self._held)
        self._held.clear()
        self._upload.send(data)
