"""How a source is registered at a journal as its reader, before it reads: nothing that it needs is removed from then on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import InputLost
from penstock.journal.format import Registration
from penstock.journal.readers import register, registration_of, require_same_journal, settled
from penstock.journal.reading import Extent, JournalReader
from penstock.journal.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A source, as a reader of journals. Everything raises LedgerMismatch, OSError."""

    name: str
    storage: Storage
    now_us: Callable[[], int]

    def is_registered(self, home: Path) -> bool:
        return registration_of(self.storage, home, self.name) is not None

    def begin(self, home: Path, extent: Extent, *, at_end: bool) -> int:
        """Return where a reader begins that no offset of the journal tells; register it there, once."""
        known = registration_of(self.storage, home, self.name)
        if known is None:
            with settled(self.storage, home):
                known = registration_of(self.storage, home, self.name) or self._registered_anew(home, extent, at_end=at_end)
        require_same_journal(known, home, extent.journal_id)
        return known.next

    def hold(self, home: Path, extent: Extent, *, needed: int, planned: int) -> bool:
        """Make sure that `needed` and what follows is not removed. Return whether the registration was changed for it.

        Then the journal must be looked at again: events were perhaps removed before. Raises InputLost where the reader planned
        up to `planned`, and the journal knows of less: it is an older one, which gives these numbers to other events.
        """
        known = registration_of(self.storage, home, self.name)
        is_held = known is not None and known.next <= needed
        if not is_held:
            with settled(self.storage, home):
                known = registration_of(self.storage, home, self.name) or self._registered_anew(home, extent, at_end=True)
                known = self._moved_back(home, known, needed)
        assert known is not None
        require_same_journal(known, home, extent.journal_id)
        if known.planned < planned:
            raise InputLost(
                f"Events up to {planned - 1} were read from the journal {home}, and its file of the reader {self.name!r} knows "
                f"of {known.planned - 1} only: it was restored from before, and may have given their numbers to other events.",
                remedy="Restore its files from the copy of the journal or a newer backup.",
            )
        return not is_held

    def plan(self, home: Path, *, end: int) -> None:
        """Note, durably, that a batch reads up to `end`: no writer may give a number below it away again."""
        known = registration_of(self.storage, home, self.name)
        if known is not None and known.planned >= end:
            return
        with settled(self.storage, home):
            known = registration_of(self.storage, home, self.name)
            if known is not None and known.planned < end:
                register(self.storage, home, replace(known, planned=end))

    def _registered_anew(self, home: Path, extent: Extent, *, at_end: bool) -> Registration:
        found = JournalReader(self.storage, home).extent() or extent  # again: within the lock nothing is removed any more
        known = Registration(
            reader=self.name,
            journal_id=found.journal_id,
            next=found.next if at_end else found.first,
            planned=found.next,
            released_at_us=self.now_us(),
        )
        register(self.storage, home, known)
        return known

    def _moved_back(self, home: Path, known: Registration, needed: int) -> Registration:
        """Hold what is still there of the events from `needed` on."""
        found = JournalReader(self.storage, home).extent()
        moved = replace(known, next=needed if found is None else max(needed, found.first), released_at_us=self.now_us())
        if moved.next >= known.next:
            return known
        register(self.storage, home, moved)
        return moved
