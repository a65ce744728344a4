"""The interface of a store that can hold a ledger as single objects: put-if-absent alone decides."""

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from penstock.blob import RequestsEach


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

    def close(self) -> None:
        """Release connections."""
        ...


@runtime_checkable
class BillingStore(Protocol):
    """A `ConditionalStore` that bills its requests."""

    @property
    def requests_each(self) -> RequestsEach:
        """How many requests each operation takes."""
        ...

    def requests_sent(self) -> Mapping[str, int]: ...
