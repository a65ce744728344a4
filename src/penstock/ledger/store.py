"""What a place must offer to hold a ledger as single objects: put-if-absent, and nothing else that decides anything."""

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from penstock.blob import RequestsEach


class ConditionalStore(Protocol):
    """Objects under keys. Keys are made of lower-case letters, digits, hyphens and slashes; the folder `tmp/` is the store's own.

    Every method may be called from several threads. What a method returned must be seen by every later call of any process.
    Unless told otherwise they raise Retryable (nothing was changed), OutcomeUnknown (it may have been), Failed.
    """

    @property
    def location(self) -> str:
        """Where it is, for people: no secrets in it."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create `key` with exactly `data`, durably and all at once; False if it exists already.

        An answer that was lost is told as OutcomeUnknown. A False may be the store's answer to its own repetition of this very
        call: the caller looks at what is there.
        """
        ...

    def get(self, key: str) -> bytes | None:
        """The whole object, None if there is none."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Create or replace `key` all at once. Need not be durable: only hints are written like this."""
        ...

    def delete(self, key: str) -> None:
        """Remove `key`; fine if there is none."""
        ...

    def keys(self, folder: str) -> Iterator[str]:
        """Every key below `folder` (which ends with a slash), lazily and in ascending order."""
        ...

    def sweep(self) -> None:
        """Collect what interrupted puts left behind. A put that is running meanwhile fails with Retryable at worst."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


@runtime_checkable
class BillingStore(Protocol):
    """A `ConditionalStore` that is reached by requests, which somebody bills."""

    @property
    def requests_each(self) -> RequestsEach:
        """How many each operation takes."""
        ...

    def requests_sent(self) -> Mapping[str, int]: ...
