"""What Penstock asks of a store of objects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.blob.expiry import Expiry


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An object. `tag` is what its writer noted on it; None where it was not asked for (in lists) or there is none.

    `modified_ms` is when it was last written (Unix time), to the second but on HDFS; None for a folder.
    """

    key: str
    size_bytes: int
    tag: str | None = None
    modified_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsEach:
    """How many requests an operation takes where nothing fails: `put` and `put_if_absent`, a whole `get`, a `list` of one page.

    `part` is one `put_part`, `complete` that of an upload with one part.
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

    `size_bytes` is None where asking for it would take a request more.
    """

    key: str
    upload: str
    size_bytes: int | None = None


class BlobStore(Protocol):
    """Objects below one root of one account. Keys are relative to the root, with slashes.

    Picklable: settings only; clients are made in each process when they are first needed. Safe to use from several threads. What
    a method returned is seen by every later call of any process. Reading calls and those whose repetition changes nothing are
    repeated by the client library for a while. Everything raises Retryable (nothing was changed), OutcomeUnknown (it may have
    been), Failed (credentials, permissions, no such bucket: the remedy says which).
    """

    @property
    def url(self) -> str:
        """The root, for people: no secrets in it."""
        ...

    @property
    def part_bytes(self) -> int:
        """How large each part of an upload but the last should be; stores refuse smaller ones."""
        ...

    @property
    def parts_at_once(self) -> int:
        """How many parts of one upload may be under way at a time."""
        ...

    @property
    def requests_each(self) -> RequestsEach:
        """What its operations cost."""
        ...

    @property
    def dates_requests(self) -> bool:
        """Whether the store refuses a request that was signed more than a quarter of an hour before it arrives."""
        ...

    @property
    def sending_once(self) -> "BlobStore":
        """The same place, reached by a client that repeats nothing by itself: a repetition would be signed anew.

        Only where `dates_requests`; elsewhere clients repeat as they do.
        """
        ...

    def put(self, key: str, data: bytes, *, tag: str) -> None:
        """Create or replace a whole object, all at once."""
        ...

    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        """Create a whole object all at once, unless there is one; False if there is, be it from this very call."""
        ...

    def get(self, key: str) -> bytes | None:
        """A whole object, None if there is none."""
        ...

    def read(self, key: str, *, start: int, length: int) -> bytes:
        """A part of an object, shorter where it ends. Raises FileNotFoundError."""
        ...

    def head(self, key: str) -> Found | None:
        """An object with its tag, None if there is none."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; fine if there is none."""
        ...

    def list(self, folder: str = "", *, limit: int | None = None) -> Iterator[Found]:
        """Every object below `folder` (empty, or ending with a slash), or the first `limit`; lazily, in ascending order of keys.

        Uploads are not objects: they are never listed.
        """
        ...

    def children(self, folder: str = "") -> Iterator[Found]:
        """What lies directly below `folder` (empty, or ending with a slash), in no order, lazily; what is deeper costs nothing.

        A folder that something lies in is one key that ends with a slash.
        """
        ...

    def begin(self, key: str, *, tag: str) -> str:
        """Begin an upload of `key`, a key that nothing else ever has, and name it."""
        ...

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Upload one part (numbers from 0) and give what `complete` needs to know of it. Repeating a number replaces the part."""
        ...

    def complete(self, key: str, upload: str, parts: Sequence[str], *, tag: str) -> None:
        """Turn the parts into the object, in one step that consumes them; without them nothing is done, and nothing is said.

        Called again, also by another process at any later time, it never makes the object appear a second time. The caller looks
        whether the object is there now. `parts` must not be empty.
        """
        ...

    def is_pending(self, key: str, upload: str) -> bool:
        """Whether the parts of an upload are still there."""
        ...

    def pending(self, folder: str) -> Iterator[Pending]:
        """Uploads of keys below `folder` that `discard` can end. None where the store ends them by itself."""
        ...

    def discard(self, pending: Pending) -> None:
        """End an upload and free what it holds; fine if it is gone. It must be known that nobody is to complete it."""
        ...

    def deletes_by_itself(self, folder: str = "") -> Sequence[Expiry]:
        """The store's own rules that delete uploads of keys below `folder`, or objects there, when they are old."""
        ...
