"""What all stores have in common: a place, its options, and trouble told as the error that the caller can act on."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, TypeVar

from typing_extensions import Self

from penstock.blob.errors import StoreFailure, error_for
from penstock.blob.request_counter import asking
from penstock.blob.url import BlobUrl
from penstock.errors import Usage
from penstock.support.secret import scrub

TAG = "penstock"
"""Under this name a writer's tag is noted on an object."""
STAGING = ".penstock-staging"
"""Where uploads lie beside a table, on stores that have no uploads of their own."""
_T = TypeVar("_T")


def unix_ms(moment: datetime) -> int:
    """Of the time that a store gives, which has no more than seconds everywhere."""
    return int(moment.timestamp()) * 1000


@dataclass(frozen=True, kw_only=True)
class PlacedStore(ABC):
    """The common part of every `BlobStore`."""

    failures: ClassVar[tuple[type[Exception], ...]]
    """What the client library raises."""

    place: BlobUrl
    options: Mapping[str, str] = field(repr=False)

    @property
    def url(self) -> str:
        return str(self.place)

    @property
    def sending_once(self) -> Self:
        return replace(self, options={**self.options, "attempts": "1"})

    def read(self, key: str, *, start: int, length: int) -> bytes:
        with self._translate_errors("read", key):
            data = self._range(key, start, length)
        if data is None:
            raise FileNotFoundError(f"{self.url}/{key}")
        return data

    @abstractmethod
    def _range(self, key: str, start: int, length: int) -> bytes | None:
        """At most `length` bytes from `start` on, None if there is no such object."""

    @staticmethod
    @abstractmethod
    def _failure_of(cause: Exception) -> StoreFailure:
        """What one of `failures` means."""

    @property
    def _settings(self) -> tuple[tuple[str, str], ...]:
        """The options as a key under which clients are kept: making one takes a while."""
        return tuple(sorted(self.options.items()))

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        """Around the making of a client, which reads options and credentials and asks no store."""
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
        """Around every use of the client; `changes`: it is to change something."""
        try:
            with asking(self.url):
                yield
        except self.failures as cause:
            raise error_for(self._failure_of(cause), act=act, where=f"{self.url}/{key}", changes=changes) from cause

    def _each(self, act: str, key: str, lazily: Iterable[_T]) -> Iterator[_T]:
        """As `_told`, around every step of what asks on the way."""
        steps = iter(lazily)
        while True:
            with self._translate_errors(act, key):
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step
