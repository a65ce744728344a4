"""The offsets of one query over journals: where it begins, and how far the next batch goes. Knows no Spark.

An offset maps the id of each journal to two sequence numbers: where the query began there, which never changes, and the first
event that is still to be read. So the offsets of a batch alone say what it reads, also where a journal was new to it. A reader
is registered before its first batch is planned: from then on no event that it needs is removed.
"""

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import Failed, InputLost, LedgerMismatch, PenstockError, Retryable
from penstock.journal.access import JournalAccess
from penstock.journal.reading import Extent, Place
from penstock.journal.storage import Storage
from penstock.support.filesystem_errors import problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.source.journal.settings import JournalSettings

Offset = Mapping[str, Sequence[int]]


class Reach(NamedTuple):
    """How far a journal is read: the query began with event `begin`, and goes on with `next`."""

    begin: int
    next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one task reads: events of a journal from `first` on and below `end`. `at`: where `first` begins, if known.

    `place`: the directory or the URL.
    """

    place: str
    journal_id: str
    first: int
    end: int
    at: Place | None


@dataclass(frozen=True, slots=True)
class _Found:
    """A journal that is there now."""

    journal: JournalAccess
    extent: Extent


class JournalStream:
    """The offsets of one query, in one process on the driver. Raises InputLost, Retryable, LedgerMismatch, Failed."""

    def __init__(self, settings: "JournalSettings", storage: Storage, *, now_us: "Callable[[], int]") -> None:
        self._settings, self._storage, self._now_us = settings, storage, now_us
        self._until: dict[str, int] | None = None
        self._has_begun = False
        self._seen: dict[str, int] = {}
        self._places: dict[tuple[str, int], Place] = {}

    def begin(self) -> dict[str, list[int]]:
        """Return where a query without a checkpoint begins: where its reader is registered, else at the start or the end.

        Spark asks again until a first batch is planned. At the end begins only what was there at the first time.
        """
        with self._explained():
            journals = self._look()
            is_new = not self._has_begun and not any(self._is_registered(each) for each in journals.values())
            self._has_begun = True
            at_end = self._settings.begins_at_end and is_new
            begins = {
                journal_id: found.journal.begin(self._settings.reader, found.extent, at_end=at_end)
                for journal_id, found in journals.items()
            }
            return {journal_id: [begin, begin] for journal_id, begin in begins.items()}

    def stop_at_now(self) -> None:
        """Stop at the journals' present ends: read nothing that is acknowledged later."""
        with self._explained():
            self._until = {journal_id: found.extent.next for journal_id, found in self._look().items()}

    def advance(self, start: Offset) -> dict[str, list[int]]:
        """Return where the batch ends that begins at `start`; `start` itself if there is nothing new."""
        with self._explained():
            journals = self._look()
            reached = _reached(start)
            self._require_present(reached, journals)
            if self._hold(reached, journals):
                journals = self._look()
            waiting = {
                journal_id: (found, reach)
                for journal_id, found in journals.items()
                if (reach := self._required_reach(journal_id, found, reached)).next < self._end_of(journal_id, found)
            }
            ends = {journal_id: list(reach) for journal_id, reach in reached.items()}
            for journal_id, (found, reach) in waiting.items():
                end = self._batch_end(journal_id, found, reach.next, among=len(waiting))
                found.journal.plan(self._settings.reader, found.extent, end=end)  # before Spark notes the batch
                ends[journal_id] = [reach.begin, end]
            return ends

    def planned(self, start: Offset, end: Offset) -> list[Piece]:
        """Return what the tasks of the batch read: the same for the same offsets, for ever. Tasks raise where events are gone."""
        with self._explained():
            journals = self._look()
            before, reached = _reached(start), _reached(end)
            self._require_present(reached, journals)
            firsts = {journal_id: _first_of(reach, before.get(journal_id)) for journal_id, reach in sorted(reached.items())}
            return [
                self._piece(journal_id, journals[journal_id], first=first, end=reached[journal_id].next)
                for journal_id, first in firsts.items()
                if first < reached[journal_id].next
            ]

    def newest(self) -> dict[str, int] | None:
        """Return how far the journals went at the last look; None before there was any."""
        return dict(self._seen) or None

    def _look(self) -> dict[str, _Found]:
        found: dict[str, _Found] = {}
        for journal in self._settings.journals(self._storage, now_us=self._now_us):
            extent = journal.extent()
            if extent is None:
                continue
            if extent.journal_id in found:
                key = "url name" if self._settings.urls else "path match"
                raise LedgerMismatch(
                    f"{journal.place} and {found[extent.journal_id].journal.place} are one journal: one of them is a copy.",
                    remedy=f"Let sources.{self._settings.name}.{key} one of them only.",
                )
            found[extent.journal_id] = _Found(journal, extent)
        self._seen = {journal_id: each.extent.next for journal_id, each in found.items()}
        return found

    def _hold(self, reached: Mapping[str, Reach], journals: Mapping[str, _Found]) -> bool:
        """Make sure that what is still to be read stays. Return whether that had to be asked for anew."""
        changed = [
            self._held(found, needed=reached[journal_id].next, planned=reached[journal_id].next)
            for journal_id, found in journals.items()
            if journal_id in reached
        ]
        return any(changed)

    def _held(self, found: _Found, *, needed: int, planned: int) -> bool:
        return found.journal.hold(self._settings.reader, found.extent, needed=needed, planned=planned)

    def _is_registered(self, found: _Found) -> bool:
        return found.journal.is_registered(self._settings.reader)

    def _piece(self, journal_id: str, found: _Found, *, first: int, end: int) -> Piece:
        self._held(found, needed=first, planned=end)
        at = self._places.get((journal_id, first))
        return Piece(place=found.journal.place, journal_id=journal_id, first=first, end=end, at=at)

    def _required_reach(self, journal_id: str, found: _Found, reached: Mapping[str, Reach]) -> Reach:
        """Return how far the journal is read; a new one is read from its first event. Raises InputLost where that is gone."""
        reach = reached.get(journal_id)
        if reach is None:
            begin = found.journal.begin(self._settings.reader, found.extent, at_end=False)
            reach = Reach(begin, begin)
        if reach.next < found.extent.first:
            raise InputLost(
                f"The journal {found.journal.place} begins with event {found.extent.first}, and source {self._settings.name!r} "
                f"goes on with {reach.next}: {found.extent.first - reach.next} events are gone that were not delivered.",
                remedy="Restore the segments (*.log) from the copy of the journal or a backup.",
            )
        return reach

    def _end_of(self, journal_id: str, found: _Found) -> int:
        """Return how far is read. A journal that came after the stop does not exist yet."""
        return found.extent.next if self._until is None else min(found.extent.next, self._until.get(journal_id, 0))

    def _batch_end(self, journal_id: str, found: _Found, begin: int, *, among: int) -> int:
        """Return where the batch ends in one of `among` journals, which share the limits evenly."""
        records, size = (_share(each, among) for each in (self._settings.max_records, self._settings.max_bytes))
        room = self._end_of(journal_id, found) - begin
        end, place = found.journal.place_behind(
            begin, records=room if records is None else min(room, records), size=size, at=self._places.get((journal_id, begin))
        )
        self._places = {key: at for key, at in self._places.items() if key[0] != journal_id or key[1] == begin}
        self._places[journal_id, end] = place
        return end

    def _require_present(self, offset: Mapping[str, Reach], journals: Mapping[str, _Found]) -> None:
        missing = sorted(offset.keys() - journals.keys())
        if missing:
            raise Retryable(
                f"The journal {missing[0]}, which source {self._settings.name!r} read up to event {offset[missing[0]].next - 1}, "
                f"is not at {self._settings.place}.",
                remedy="Mount its directory, or name it in the source's path, or its receiver in the source's url.",
            )

    @contextmanager
    def _explained(self) -> "Iterator[None]":
        try:
            yield
        except PenstockError:
            raise
        except OSError as error:
            raise read_failed(self._settings.name, self._settings.place, error) from error


def _reached(offset: Offset) -> dict[str, Reach]:
    return {journal_id: Reach(*numbers) for journal_id, numbers in offset.items()}


def _first_of(reach: Reach, before: Reach | None) -> int:
    """Return the first event of a batch that ends at `reach`.

    Where the query begins is asked for anew when its first batch is read again, and its reader has gone on meanwhile: what the
    end says of it holds.
    """
    return reach.begin if before is None or before.begin != reach.begin else before.next


def read_failed(source: str, place: str, error: OSError) -> PenstockError:
    """Return the error to raise for a journal's file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return Retryable(f"A file of the journal {place} of source {source!r} is gone: {error}.", remedy="Start again.")
    problem = problem_of(error)
    return Failed(
        f"The journal {place} of source {source!r} cannot be read: {problem.reason}.",
        remedy=f"{problem.advice}; driver and executors read its files, and the driver registers there.",
    )


def _share(limit: int | None, among: int) -> int | None:
    return None if limit is None else max(1, limit // among)
