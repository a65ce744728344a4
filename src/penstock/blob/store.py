"""The interface of an object store, as Penstock uses it, and the opening of one from a URL and its options."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from typing_extensions import Self

from penstock.blob.client import Failure, asking, error_for, requests_to, require_known
from penstock.blob.url import BlobUrl, parse
from penstock.core.model import new_nonce
from penstock.errors import DependencyMissing, Usage
from penstock.support.extras import install_command
from penstock.support.secret import remember_options, scrub

_T = TypeVar("_T")


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

    `look` is one `head`, `part` one `put_part`, and `complete` that of an upload with one part.
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
    """One rule of a store: whatever lies below `prefix` is deleted after `days`. None: on a date, which may be today.

    `prefix` is of whole keys, not relative to a root. `of_uploads`: the rule is for uploads that were begun and not completed,
    else for objects.
    """

    rule: str
    of_uploads: bool
    prefix: str = ""
    days: int | None = None

    def covers(self, folder: str) -> bool:
        """Return whether the rule may delete something below `folder`, which is a prefix of whole keys, too."""
        return folder.startswith(self.prefix) or self.prefix.startswith(folder)


@dataclass(frozen=True, kw_only=True)
class BlobStore(ABC):
    """Objects below one root of one account. Keys are relative to the root, with slashes.

    Picklable, because it holds only settings; each process makes its clients when they are first needed. Thread-safe. Every later
    call of any process sees what a method returned. The client library retries reads, and operations whose repetition changes
    nothing, for a while. Every method raises Retryable (nothing was changed), OutcomeUnknown (it may have been) or Failed
    (credentials, permissions, no such bucket: the remedy says which).
    """

    requests_each: ClassVar[RequestsEach] = RequestsEach()
    known_options: ClassVar[tuple[str, ...]]
    failures: ClassVar[tuple[type[Exception], ...]]
    """Exceptions of the client library."""
    stages_in: ClassVar[str | None] = None
    """What holds uploads beside the root (`bucket`, say), and must not itself be the root; None if uploads are no objects."""

    place: BlobUrl
    options: Mapping[str, str] = field(repr=False)
    part_bytes: int = 8 << 20
    """Size of each part of an upload but the last; stores refuse smaller ones."""
    parts_at_once: int = 4
    """How many parts of one upload may be uploaded at the same time."""
    dates_requests: bool = False
    """Whether the store refuses a request that was signed more than a quarter of an hour before it arrives."""

    @classmethod
    def at(cls, place: BlobUrl, options: Mapping[str, str]) -> Self:
        """Return the store at `place`. Raises Usage."""
        require_known(options, cls.known_options, place=place)
        if cls.stages_in is not None and not place.prefix:
            raise Usage(
                f"{place} is a whole {cls.stages_in}, and what is staged must lie outside of the table.",
                remedy=f"Give the table a place in it, such as {place}/table.",
            )
        return cls(place=place, options=options)

    @property
    def url(self) -> str:
        """The root, for people, without secrets."""
        return str(self.place)

    @property
    def sending_once(self) -> Self:
        """The same place through a client that never retries: a retry would be signed anew, and could be hours late.

        For stores with `dates_requests`; other stores' clients go on retrying.
        """
        return replace(self, options={**self.options, "attempts": "1"})

    def for_delta(self) -> Mapping[str, str]:
        """Return the storage options with which the library for Delta tables reaches this place. Raises Usage if none do."""
        raise Usage(f"{self.url} cannot hold a Delta table of Penstock's yet.", remedy="Use a directory, s3://, az:// or gs://.")

    def requests_sent(self) -> Mapping[str, int]:
        """Return how many requests this process has sent there, by the store's URL."""
        return {self.url: requests_to(self.url)}

    @abstractmethod
    def put(self, key: str, data: bytes, *, tag: str) -> None:
        """Create or replace a whole object atomically."""

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes, *, tag: str) -> bool:
        """Create a whole object atomically, unless it exists. False if it exists, even if this very call created it."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """Return a whole object, None if it does not exist."""

    def read(self, key: str, *, start: int, length: int) -> bytes:
        """Return a part of an object, shorter at the object's end. Raises FileNotFoundError."""
        with self._translate_errors("read", key):
            data = self._range(key, start, length)
        if data is None:
            raise FileNotFoundError(f"{self.url}/{key}")
        return data

    @abstractmethod
    def head(self, key: str) -> Found | None:
        """Return an object with its tag, None if it does not exist."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object if it exists."""

    @abstractmethod
    def list(self, folder: str = "", *, limit: int | None = None) -> Iterator[Found]:
        """Yield every object below `folder` (empty or ending with a slash), or the first `limit`, lazily, in ascending key order.

        Uploads are not objects and are never listed.
        """

    @abstractmethod
    def children(self, folder: str = "") -> Iterator[Found]:
        """Yield what lies directly below `folder` (empty, or ending with a slash), lazily, in no order.

        A folder that is not empty is one key that ends with a slash; what lies deeper costs nothing.
        """

    def begin(self, key: str, *, tag: str) -> str:  # noqa: ARG002 - most stores take both with `complete`
        """Begin an upload of `key`, which nothing else ever has, and return the upload's name."""
        return new_nonce()

    @abstractmethod
    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Upload one part (numbers from 0) and return its id for `complete`. Repeating a number replaces the part."""

    @abstractmethod
    def complete(self, key: str, upload: str, parts: Sequence[str], *, tag: str) -> None:
        """Turn the parts into the object in one step that consumes them. If the parts are gone, do nothing and raise nothing.

        A repetition, at any later time and by any process, never makes the object appear a second time. The caller looks whether
        the object exists now. `parts` must not be empty.
        """

    @abstractmethod
    def is_pending(self, key: str, upload: str) -> bool:
        """Return whether the parts of an upload still exist."""

    @abstractmethod
    def pending(self, folder: str) -> Iterator[Pending]:
        """Yield the uploads of keys below `folder` that `discard` can end; none where the store ends uploads by itself."""

    @abstractmethod
    def discard(self, pending: Pending) -> None:
        """End an upload, if it exists, and free its parts. The caller must know that nobody will complete it."""

    def deletes_by_itself(self, folder: str = "") -> Sequence[Expiry]:  # noqa: ARG002 - some stores have no rules
        """Return the store's own rules that delete old uploads of keys below `folder`, or old objects there."""
        return ()

    # --- steps

    @abstractmethod
    def _range(self, key: str, start: int, length: int) -> bytes | None:
        """Return at most `length` bytes from `start` on, None if there is no such object."""

    @staticmethod
    @abstractmethod
    def _failure_of(cause: Exception) -> tuple[Failure, str]:
        """Return what one of `failures` says, and its own text for people."""

    @property
    def _settings(self) -> tuple[tuple[str, str], ...]:
        """The options as a hashable key of the client cache, because making a client is slow."""
        return tuple(sorted(self.options.items()))

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        """Raise Usage for errors in making a client, which reads options and credentials and contacts no store."""
        refusals: tuple[type[Exception], ...] = (*self.failures, ValueError, OSError)
        try:
            yield
        except refusals as cause:
            reason = scrub((str(cause).splitlines() or [type(cause).__name__])[0])
            raise Usage(
                f"No connection to {self.place} can be made: {reason.rstrip('.')}.",
                remedy="Correct the account's options, or give it credentials: docs/howto says which there are.",
            ) from cause

    @contextmanager
    def _translate_errors(self, act: str, key: str, *, changes: bool = False) -> Iterator[None]:
        """Translate errors of any use of the client. `changes`: the operation was to change something."""
        try:
            with asking(self.url):
                yield
        except self.failures as cause:
            failure, reason = self._failure_of(cause)
            raise error_for(failure, reason, act=act, where=f"{self.url}/{key}", changes=changes) from cause

    def _each(self, act: str, key: str, lazily: Iterable[_T]) -> Iterator[_T]:
        """Yield from `lazily`, with `_translate_errors` around each step, which may send a request."""
        steps = iter(lazily)
        while True:
            with self._translate_errors(act, key):
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step


_STORES = {
    "az": ("azure", "AzureStore"),
    "gs": ("gcs", "GcsStore"),
    "hdfs": ("hdfs", "HdfsStore"),
    "s3": ("s3", "S3Store"),
}
"""By kind of store: the module that alone imports its client library and is named like Penstock's extra, and the class there."""


def open_store(url: str, *, options: Mapping[str, Any] | None = None) -> BlobStore:
    """Return the store at `url`. Nothing is connected yet. Raises Usage, DependencyMissing."""
    place = parse(url)
    remember_options(options or {})
    extra, name = _STORES[place.kind]
    try:
        kind: type[BlobStore] = getattr(import_module(f"penstock.blob.{extra}"), name)
    except ImportError as cause:
        raise DependencyMissing(
            f"{place} needs the package {cause.name}, which is not installed.",
            remedy=f"Install it on the driver and on every executor: {install_command(extra)}",
        ) from cause
    return kind.at(place, {name: str(value) for name, value in (options or {}).items()})
