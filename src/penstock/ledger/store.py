"""Stores that can hold a ledger as single objects: put-if-absent alone decides."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Protocol, runtime_checkable

from penstock.blob import BlobStore, RequestsEach
from penstock.core.model import new_nonce


class ConditionalStore(Protocol):
    """Objects under keys of lower-case letters, digits, hyphens and slashes. The folder `tmp/` is the store's own.

    Thread-safe. Every later call of any process sees what a method returned. Unless stated otherwise, methods raise Retryable
    (nothing was changed), OutcomeUnknown (it may have been), Failed.
    """

    @property
    def location(self) -> str:
        """Where the store is, for people, without secrets."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create `key` with exactly `data`, durably and atomically; False if it exists already.

        Raises OutcomeUnknown if the answer was lost. False may be the store's answer to its own repetition of this very call: the
        caller reads what is there.
        """
        ...

    def get(self, key: str) -> bytes | None:
        """Return the whole object, None if it does not exist."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Create or replace `key` atomically. Need not be durable: only hints are written like this."""
        ...

    def delete(self, key: str) -> None:
        """Remove `key` if it exists."""
        ...

    def keys(self, folder: str) -> Iterator[str]:
        """Yield every key below `folder` (which ends with a slash), lazily and in ascending order."""
        ...

    def sweep(self) -> None:
        """Collect what interrupted puts left behind. At worst, a concurrent put fails with Retryable."""
        ...


@runtime_checkable
class BillingStore(Protocol):
    """A `ConditionalStore` that bills its requests."""

    @property
    def requests_each(self) -> RequestsEach:
        """How many requests each operation takes."""
        ...

    def requests_sent(self) -> Mapping[str, int]: ...


_OWN = ("entries/", "floor/", "prove/", "lease/", "hint")
"""Prefixes of the ledger's keys. Anything else below the root is not the ledger's: an account, or an upload in progress."""


class BlobLedgerStore:
    """A `ConditionalStore` in a bucket, a container or an HDFS directory."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    @property
    def location(self) -> str:
        return self._store.url

    @property
    def requests_each(self) -> RequestsEach:
        return self._store.requests_each

    def requests_sent(self) -> Mapping[str, int]:
        return self._store.requests_sent()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._store.put_if_absent(key, data, tag=new_nonce())

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def put(self, key: str, data: bytes) -> None:
        self._store.put(key, data, tag=new_nonce())

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def keys(self, folder: str) -> Iterator[str]:
        return (found.key for found in self._store.list(folder))

    def sweep(self) -> None:
        for folder in _OWN:
            for pending in self._store.pending(folder):
                self._store.discard(pending)


class MemoryStore:
    """A `ConditionalStore` for tests and the simulator. All users of one object share its content."""

    location = "memory"

    def __init__(self) -> None:
        self._lock = Lock()
        self._objects: dict[str, bytes] = {}
        self._sorted: list[str] = []

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with self._lock:
            if key in self._objects:
                return False
            self._set(key, data)
            return True

    def get(self, key: str) -> bytes | None:
        return self._objects.get(key)

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self._set(key, data)

    def delete(self, key: str) -> None:
        with self._lock:
            if self._objects.pop(key, None) is not None:
                del self._sorted[bisect_left(self._sorted, key)]

    def keys(self, folder: str) -> Iterator[str]:
        with self._lock:
            start = bisect_left(self._sorted, folder)
            end = bisect_left(self._sorted, folder + "\x7f")
            found = self._sorted[start:end]
        return iter(found)

    def sweep(self) -> None:
        """Do nothing: puts leave nothing behind."""

    def _set(self, key: str, data: bytes) -> None:
        if key not in self._objects:
            insort(self._sorted, key)
        self._objects[key] = data
