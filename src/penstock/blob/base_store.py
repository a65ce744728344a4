"""The common part of all stores: a place, its options, and the translation of client errors."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, TypeVar

from typing_extensions import Self

from penstock.blob.errors import Failure, error_for
from penstock.blob.request_counter import asking
from penstock.blob.url import BlobUrl
from penstock.errors import Usage
from penstock.support.secret import scrub

TAG = "penstock"
"""Name of the metadata entry that holds the writer's tag on an object."""
STAGING = ".penstock-staging"
"""Folder beside a table for uploads, on stores without uploads of their own."""
_T = TypeVar("_T")


def unix_ms(moment: datetime) -> int:
    """Return a store's time in milliseconds, truncated to seconds: not every store has more."""
    return int(moment.timestamp()) * 1000


@dataclass(frozen=True, kw_only=True)
class PlacedStore(ABC):
    """Common base of every `BlobStore`."""

    failures: ClassVar[tuple[type[Exception], ...]]
    """Exceptions of the client library."""

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
