"""A journal as its readers use it, be its files here or behind a receiver's endpoint."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from penstock.journal.event import Record
from penstock.journal.readers import release
from penstock.journal.reading import Extent, Frames, JournalReader, Place
from penstock.journal.registering import Reader
from penstock.journal.storage import Storage


class JournalAccess(Protocol):
    """What a reader does with a journal. Raises as `JournalReader` and `Reader` do, OSError included."""

    @property
    def place(self) -> str:
        """The directory or the URL."""
        ...

    def extent(self) -> Extent | None:
        """Return what the journal has and is durable, None before its first segment."""
        ...

    def place_behind(self, first: int, *, records: int | None, size: int | None, at: Place | None) -> tuple[int, Place]:
        """Return where a batch from event `first` on ends that has at most `records` events and about `size` bytes."""
        ...

    def read(self, first: int, end: int, *, journal_id: str, at: Place | None) -> Iterator[Record]:
        """Yield the events from `first` on and below `end`."""
        ...

    def is_registered(self, reader: str) -> bool:
        """Return whether the journal knows that reader."""
        ...

    def begin(self, reader: str, extent: Extent, *, at_end: bool) -> int:
        """Return where a reader begins that no offset of the journal tells; register it there, once."""
        ...

    def hold(self, reader: str, extent: Extent, *, needed: int, planned: int) -> bool:
        """Make sure that `needed` and what follows is not removed. Return whether the journal must be looked at again."""
        ...

    def plan(self, reader: str, extent: Extent, *, end: int) -> None:
        """Note, durably, that a batch reads up to `end`."""
        ...

    def release(self, reader: str, extent: Extent, *, below: int) -> None:
        """Note, durably, that `reader` needs no event below `below` any more."""
        ...


class LocalJournal:
    """The journal in the directory `home`."""

    def __init__(self, storage: Storage, home: Path, *, now_us: Callable[[], int]) -> None:
        self._storage, self._home, self._now_us = storage, home, now_us
        self._reader = JournalReader(storage, home)

    @property
    def place(self) -> str:
        return str(self._home)

    def extent(self) -> Extent | None:
        return self._reader.extent()

    def place_behind(self, first: int, *, records: int | None, size: int | None, at: Place | None) -> tuple[int, Place]:
        return self._reader.place_behind(first, records=records, size=size, at=at)

    def read(self, first: int, end: int, *, journal_id: str, at: Place | None) -> Iterator[Record]:
        return self._reader.read(first, end, journal_id=journal_id, at=at)

    def frames(self, first: int, end: int, *, journal_id: str, at: Place | None, most_bytes: int) -> Frames:
        """Return the events from `first` on and below `end` as they are on the disk, up to `most_bytes`, one at least."""
        return self._reader.frames(first, end, journal_id=journal_id, at=at, most_bytes=most_bytes)

    def is_registered(self, reader: str) -> bool:
        return self._registered(reader).is_registered(self._home)

    def begin(self, reader: str, extent: Extent, *, at_end: bool) -> int:
        return self._registered(reader).begin(self._home, extent, at_end=at_end)

    def hold(self, reader: str, extent: Extent, *, needed: int, planned: int) -> bool:
        return self._registered(reader).hold(self._home, extent, needed=needed, planned=planned)

    def plan(self, reader: str, extent: Extent, *, end: int) -> None:  # noqa: ARG002 - one that is known is checked by `hold`
        self._registered(reader).plan(self._home, end=end)

    def release(self, reader: str, extent: Extent, *, below: int) -> None:
        release(self._storage, self._home, reader, journal_id=extent.journal_id, below=below, now_us=self._now_us())

    def _registered(self, reader: str) -> Reader:
        return Reader(name=reader, storage=self._storage, now_us=self._now_us)
