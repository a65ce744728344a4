"""The root of a spool, as `spool:` of the pipeline file names it, and the places in it: directories, or folders of a store.

A directory is on this machine, or mounted at the same path on the driver and on every executor. On an object store or HDFS each
piece is one object, which appears when its attempt has written all of it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from penstock.blob import BlobStore, Pending, open_store
from penstock.blob.check import StoreCheck, check_store, waiting_finding
from penstock.blob.object_file import PartedUpload, open_object
from penstock.blob.url import MISSPELT, is_blob, is_misspelt, scheme_of
from penstock.core.model import Finding, PipelineName, SinkName
from penstock.errors import OutcomeUnknown, Usage
from penstock.protocols import TaskCheck
from penstock.sink.spool.place import ID_SUFFIX, Place, Spooled, folder_name
from penstock.support.private_files import create_durably, create_private, make_private_directory, open_private, sync_directory
from penstock.support.secret import scheme_only


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPlace:
    """The directory that holds the spool files of one sink."""

    sharing: ClassVar = "Put `spool:` on storage that is mounted at the same path on the driver and on every executor."
    is_remote: ClassVar = False

    directory: str

    @property
    def where(self) -> str:
        return self.directory

    def identities(self) -> Sequence[str]:
        create_durably(Path(self.directory), make_private_directory)
        return [path.name for path in Path(self.directory).glob(f"*{ID_SUFFIX}")]

    def identify(self, name: str) -> None:
        path = Path(self.directory, name)
        create_private(path)
        for directory in list(path.parents)[:3]:
            sync_directory(directory)

    def holds(self, name: str) -> bool:
        return Path(self.directory, name).exists()

    def create(self, name: str) -> "DirectoryFile":
        return DirectoryFile(self.directory, name)

    def open(self, name: str) -> BinaryIO:
        return open(os.path.join(self.directory, name), "rb")

    def spooled(self) -> Iterator[Spooled]:
        directory = Path(self.directory)
        for path in sorted(directory.iterdir()) if directory.exists() else ():
            with suppress(FileNotFoundError):  # discarded meanwhile
                yield Spooled(name=path.name, size_bytes=path.stat().st_size)

    def remove(self, spooled: Spooled) -> None:
        Path(self.directory, spooled.name).unlink(missing_ok=True)

    def requests_sent(self) -> Mapping[str, int]:
        return {}


class DirectoryFile:
    """A `PieceFile` in a directory."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._file = open_private(Path(directory, name), "xb")

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        sync_directory(self._directory)
        self._file.close()

    def abandon(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPlace:
    """The spool objects of one sink, below `folder`, which ends with a slash."""

    sharing: ClassVar = "Let tasks reach the same store as the driver: with the same endpoint, and the same account."
    is_remote: ClassVar = True

    store: BlobStore
    folder: str

    @property
    def where(self) -> str:
        return f"{self.store.url}/{self.folder}".rstrip("/")

    def identities(self) -> Sequence[str]:
        return [spooled.name for spooled in self._objects() if spooled.name.endswith(ID_SUFFIX)]

    def identify(self, name: str) -> None:
        self.store.put(self.folder + name, b"", tag=name)

    def holds(self, name: str) -> bool:
        return self.store.head(self.folder + name) is not None

    def create(self, name: str) -> "ObjectFile":
        return ObjectFile(self.store, self.folder + name, tag=name)

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
        return self.store.requests_sent()

    def _objects(self) -> Iterator[Spooled]:
        for found in self.store.list(self.folder):
            yield Spooled(name=found.key.removeprefix(self.folder), size_bytes=found.size_bytes)


class ObjectFile(PartedUpload):
    """A `PieceFile` in a store: one put if it is small, else an upload in parts. Attempts never share a key."""

    def finish(self) -> None:
        """Write the rest, then look for the object, however the store answered. Raises OutcomeUnknown if it is not there."""
        with suppress(OutcomeUnknown):
            if self.name is None:
                self._store.put(self._key, self.unsent(), tag=self._tag)
            else:
                self._store.complete(self._key, self.name, self.parts(), tag=self._tag)
        found = self._store.head(self._key)
        if found is None or (found.size_bytes, found.tag) != (self.size_bytes, self._tag):
            raise OutcomeUnknown(
                f"{self._store.url}/{self._key} was written with {self.size_bytes} bytes, but what is there is {found}.",
                remedy="Start again.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolRoot:
    """A directory, or the URL of a store with its `options`. A sink gets it as `spool` and passes it to its `Spool`.

    Methods raise Usage if there is no such store, and DependencyMissing if its library is not installed.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def place_of(self, pipeline: PipelineName, sink: SinkName) -> Place:
        """Return the place of one sink. Nothing is connected or created yet."""
        folders = folder_name(pipeline), folder_name(sink)
        if not is_blob(self.url):
            return DirectoryPlace(directory=os.path.join(self.url, *folders))
        return ObjectPlace(store=self.store(), folder="/".join((*folders, "")))

    def store(self) -> BlobStore:
        return open_store(self.url, options=self.options)

    def check(self) -> Sequence[Finding]:
        """Return whether a store can be used as it must be; leave nothing behind. A directory is checked at the start."""
        if not is_blob(self.url):
            return []
        reached = check_store(self.store(), subject=self._subject, folder="")
        return [reached, *self.lifecycle()] if reached.ok else [reached]

    def lifecycle(self) -> Sequence[Finding]:
        """Return whether a store deletes pieces before an outage ends. A directory deletes nothing."""
        return [waiting_finding(self.store())] if is_blob(self.url) else []

    def task_checks(self) -> Sequence[TaskCheck]:
        """Return the same checks for tasks. None for a directory: tasks check at the first batch that it is the driver's."""
        return [StoreCheck(subject=self._subject, reopen=self.store, folder="")] if is_blob(self.url) else []

    def requests_sent(self) -> Mapping[str, int]:
        return self.store().requests_sent() if is_blob(self.url) else {}

    @property
    def _subject(self) -> str:
        return f"spool {self.url}"


def root_at(place: "SpoolRoot | str | os.PathLike[str]") -> SpoolRoot:
    """Return the root at a path or URL; a path is made absolute. Raises Usage for a URL that names no store."""
    if isinstance(place, SpoolRoot):
        return place
    text = os.fspath(place)
    if scheme_of(text) and not is_blob(text):
        raise Usage(
            f"A spool cannot be at {scheme_of(text)}:, expected a directory or a URL of s3, az, gs or hdfs.",
            remedy="Name the directory where it is mounted; write ./a:b for a directory with a colon in its name.",
        )
    if is_misspelt(text):
        raise Usage(f"The place of a spool is neither a URL nor likely a directory: {scheme_only(text)}.", remedy=MISSPELT)
    return SpoolRoot(url=text if is_blob(text) else str(Path(text).absolute()))
