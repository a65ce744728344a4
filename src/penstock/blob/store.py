"""The interface of an object store, as Penstock uses it, and the opening of one from a URL and its options."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from penstock.blob.url import BlobUrl, parse
from penstock.errors import DependencyMissing
from penstock.support.secret import remember_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An object. `tag` is the writer's note on it; None if it has none, or in lists, which do not fetch it.

    `modified_ms` is when it was last written (Unix time), exact to the second except on HDFS; None for a folder.
    """

    key: str
    size_bytes: int
    tag: str | None = None
    modified_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsEach:
    """How many requests each operation takes if nothing fails: `put` and `put_if_absent`, a whole `get`, a `list` of one page.

    `part` is one `put_part`; `complete` is that of an upload with one part.
    """

    put: int = 1
    get: int = 1
    look: int = 1
    list: int = 1
    begin: int = 0
    part: int = 1
    complete: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An upload that was begun and neither completed nor discarded. `upload` is the store's name for it.

    `size_bytes` is None where finding it out would take another request.
    """

    key: str
    upload: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """One rule: whatever lies below a prefix of whole keys is deleted after `days`. None: by date, which may be today.

    `of_uploads`: the rule is for uploads that were begun and not completed, else for objects.
    """

    rule: str
    of_uploads: bool
    prefix: str = ""
    days: int | None = None

    def covers(self, folder: str) -> bool:
        """Return whether the rule may delete something below `folder`, which is a prefix of whole keys, too."""
        return folder.startswith(self.prefix) or self.prefix.startswith(folder)


class BlobStore(Protocol):
    """Objects below one root of one account. Keys are relative to the root, with slashes.

    Picklable, because it holds only settings; each process makes its clients when they are first needed. Thread-safe. Every later
    call of any process sees what a method returned. The client library retries reads, and operations whose repetition changes
    nothing, for a while. Every method raises Retryable (nothing was changed), OutcomeUnknown (it may have been) or Failed
    (credentials, permissions, no such bucket: the remedy says which).
    """

    @property
    def url(self) -> str:
        """The root, for people, without secrets."""
        ...

    @property
    def part_bytes(self) -> int:
        """Size of each part of an upload but the last; stores refuse smaller ones."""
        ...

    @property
    def parts_at_once(self) -> int:
        """How many parts of one upload may be uploaded at the same time."""
        ...

    @property
    def requests_each(self) -> RequestsEach:
        """How many requests each operation takes."""
        ...

    @property
    def dates_requests(self) -> bool:
        """Whether the store refuses a request that was signed more than a quarter of an hour before it arrives."""
        ...

    @property
    def sending_once(self) -> "BlobStore":
        """The same place through a client that never retries: a retry would be signed anew, and could be hours late.

        For stores with `dates_requests`; other stores' clients go on retrying.
        """
        ...

    def put(self, key: str, data: bytes, *, tag: str) -> None:
        """Create or replace a whole object atomically."""
        ...

    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        """Create a whole object atomically, unless it exists. False if it exists, even if this very call created it."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return a whole object, None if it does not exist."""
        ...

    def read(self, key: str, *, start: int, length: int) -> bytes:
        """Return a part of an object, shorter at the object's end. Raises FileNotFoundError."""
        ...

    def head(self, key: str) -> Found | None:
        """Return an object with its tag, None if it does not exist."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object if it exists."""
        ...

    def list(self, folder: str = "", *, limit: int | None = None) -> Iterator[Found]:
        """Yield every object below `folder` (empty or ending with a slash), or the first `limit`, lazily, in ascending key order.

        Uploads are not objects and are never listed.
        """
        ...

    def children(self, folder: str = "") -> Iterator[Found]:
        """Yield what lies directly below `folder` (empty, or ending with a slash), lazily, in no order.

        A folder that is not empty is one key that ends with a slash; what lies deeper costs nothing.
        """
        ...

    def begin(self, key: str, *, tag: str) -> str:
        """Begin an upload of `key`, which nothing else ever has, and return the upload's name."""
        ...

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Upload one part (numbers from 0) and return its id for `complete`. Repeating a number replaces the part."""
        ...

    def complete(self, key: str, upload: str, parts: Sequence[str], *, tag: str) -> None:
        """Turn the parts into the object in one step that consumes them. If the parts are gone, do nothing and raise nothing.

        A repetition, at any later time and by any process, never makes the object appear a second time. The caller looks whether
        the object exists now. `parts` must not be empty.
        """
        ...

    def is_pending(self, key: str, upload: str) -> bool:
        """Return whether the parts of an upload still exist."""
        ...

    def pending(self, folder: str) -> Iterator[Pending]:
        """Yield the uploads of keys below `folder` that `discard` can end; none where the store ends uploads by itself."""
        ...

    def discard(self, pending: Pending) -> None:
        """End an upload, if it exists, and free its parts. The caller must know that nobody will complete it."""
        ...

    def deletes_by_itself(self, folder: str = "") -> Sequence[Expiry]:
        """Return the store's own rules that delete old uploads of keys below `folder`, or old objects there."""
        ...


_STORES = {
    "az": ("penstock.blob.azure", "azure_store", "azure"),
    "gs": ("penstock.blob.gcs", "gcs_store", "gcs"),
    "hdfs": ("penstock.blob.hdfs", "hdfs_store", "hdfs"),
    "s3": ("penstock.blob.s3", "s3_store", "s3"),
}
"""Of each kind of store: its module, which alone imports the client library, the factory in it, and Penstock's extra."""


def open_store(url: str, *, options: Mapping[str, Any] | None = None) -> BlobStore:
    """Return the store at `url`. Nothing is connected yet. Raises Usage, DependencyMissing."""
    place = parse(url)
    remember_options(options or {})
    module, factory, extra = _STORES[place.kind]
    try:
        opener: Callable[[BlobUrl, Mapping[str, str]], BlobStore] = getattr(import_module(module), factory)
    except ImportError as cause:
        raise DependencyMissing(
            f"{place} needs the package {cause.name}, which is not installed.",
            remedy=f"Install it on the driver and on every executor: pip install 'penstock[{extra}]'.",
        ) from cause
    return opener(place, {name: str(value) for name, value in (options or {}).items()})
