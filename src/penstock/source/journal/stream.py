"""The offsets of one query over journals: where it begins, and how far the next batch goes. Knows no Spark.

An offset maps the id of each journal to the first sequence number that is still to be read. A reader is registered before its
first batch is planned: from then on no event that it needs is removed.
"""

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import Failed, InputLost, LedgerMismatch, PenstockError, Retryable
from penstock.journal.format import Registration
from penstock.journal.readers import register, registration_of
from penstock.journal.reading import Extent, JournalReader, Place
from penstock.journal.storage import Storage
from penstock.support.filesystem_errors import problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.source.journal.settings import JournalSettings

Offset = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one task reads: events of a journal from `first` on and below `end`. `at`: where `first` begins, if known."""

    home: str
    journal_id: str
    first: int
    end: int
    at: Place | None


@dataclass(frozen=True, slots=True)
class _Found:
    """A journal that is there now."""

    home: Path
    extent: Extent


class JournalStream:
    """The offsets of one query, in one process on the driver. Raises InputLost, Retryable, Failed."""

    def __init__(self, settings: "JournalSettings", storage: Storage, *, now_us: "Callable[[], int]") -> None:
        self._settings, self._storage, self._now_us = settings, storage, now_us
        self._until: Offset | None = None
        self._seen: dict[str, int] = {}
        self._places: dict[tuple[str, int], Place] = {}

    def begin(self) -> dict[str, int]:
        """Return where a query without a checkpoint begins: where its reader is registered, else at the start or the end."""
        with self._explained():
            return {journal_id: self._begin_of(found) for journal_id, found in self._look().items()}

    def stop_at_now(self) -> None:
        """Stop at the journals' present ends: read nothing that is acknowledged later."""
        with self._explained():
            self._until = {journal_id: found.extent.next for journal_id, found in self._look().items()}

    def advance(self, start: Offset) -> dict[str, int]:
        """Return where the batch ends that begins at `start`; `start` itself if there is nothing new."""
        with self._explained():
            journals = self._look()
            self._require_present(start, journals)
            waiting = {
                journal_id: (found, begin)
                for journal_id, found in journals.items()
                if (begin := self._required_from(journal_id, found, start)) < self._end_of(journal_id, found)
            }
            ends = {**start}
            for journal_id, (found, begin) in waiting.items():
                ends[journal_id] = self._batch_end(journal_id, found, begin, among=len(waiting))
            return ends

    def planned(self, start: Offset, end: Offset) -> list[Piece]:
        """Return what the tasks of the batch read: the same for the same offsets."""
        with self._explained():
            journals = self._look()
            self._require_present(end, journals)
            return [
                Piece(
                    home=str(journals[journal_id].home),
                    journal_id=journal_id,
                    first=first,
                    end=last,
                    at=self._places.get((journal_id, first)),
                )
                for journal_id, last in sorted(end.items())
                if (first := self._begin(journal_id, journals[journal_id], start)) < last
            ]

    def newest(self) -> dict[str, int] | None:
        """Return how far the journals went at the last look; None before there was any."""
        return dict(self._seen) or None

    def _look(self) -> dict[str, _Found]:
        found: dict[str, _Found] = {}
        for home in self._settings.homes():
            extent = JournalReader(self._storage, home).extent()
            if extent is None:
                continue
            if extent.journal_id in found:
                raise LedgerMismatch(
                    f"{home} and {found[extent.journal_id].home} are one journal: one of them is a copy.",
                    remedy=f"Let sources.{self._settings.name}.path match one of them only.",
                )
            found[extent.journal_id] = _Found(home, extent)
        self._seen = {journal_id: each.extent.next for journal_id, each in found.items()}
        return found

    def _begin(self, journal_id: str, found: _Found, start: Offset) -> int:
        known = start.get(journal_id)
        return self._begin_of(found) if known is None else known

    def _begin_of(self, found: _Found) -> int:
        """Return where the reader begins in a journal that no offset names; register it there, once."""
        reader, extent = self._settings.reader, found.extent
        known = registration_of(self._storage, found.home, reader)
        if known is None:
            known = Registration(
                reader=reader,
                journal_id=extent.journal_id,
                next=extent.next if self._settings.begins_at_end else extent.first,
                released_at_us=self._now_us(),
            )
            register(self._storage, found.home, known)
        return known.next

    def _required_from(self, journal_id: str, found: _Found, start: Offset) -> int:
        """Return where the next batch begins. Raises InputLost where that event is gone."""
        begin = self._begin(journal_id, found, start)
        if begin < found.extent.first:
            raise InputLost(
                f"The journal {found.home} begins with event {found.extent.first}, and source {self._settings.name!r} goes on "
                f"with {begin}: {found.extent.first - begin} events are gone that were not delivered.",
                remedy="Restore the segments (*.log) from the copy of the journal or a backup.",
            )
        return begin

    def _end_of(self, journal_id: str, found: _Found) -> int:
        """Return how far is read. A journal that came after the stop does not exist yet."""
        return found.extent.next if self._until is None else min(found.extent.next, self._until.get(journal_id, 0))

    def _batch_end(self, journal_id: str, found: _Found, begin: int, *, among: int) -> int:
        """Return where the batch ends in one of `among` journals, which share the limits evenly."""
        records, size = (_share(each, among) for each in (self._settings.max_records, self._settings.max_bytes))
        room = self._end_of(journal_id, found) - begin
        end, place = JournalReader(self._storage, found.home).place_behind(
            begin, records=room if records is None else min(room, records), size=size, at=self._places.get((journal_id, begin))
        )
        self._places = {key: at for key, at in self._places.items() if key[0] != journal_id or key[1] == begin}
        self._places[journal_id, end] = place
        return end

    def _require_present(self, offset: Offset, journals: Mapping[str, _Found]) -> None:
        missing = sorted(offset.keys() - journals.keys())
        if missing:
            raise Retryable(
                f"The journal {missing[0]}, which source {self._settings.name!r} read up to event {offset[missing[0]] - 1}, is "
                f"not at {self._settings.pattern}.",
                remedy="Mount its directory, or name it in the source's path.",
            )

    @contextmanager
    def _explained(self) -> "Iterator[None]":
        try:
            yield
        except PenstockError:
            raise
        except OSError as error:
            raise read_failed(self._settings.name, self._settings.pattern, error) from error


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
