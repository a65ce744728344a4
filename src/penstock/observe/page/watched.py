"""A pipeline that the page shows: its status, the newest entries of its ledger, and what its driver noted."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from threading import Lock

from penstock.core.model import Entry, Position
from penstock.observe.batch_life import BatchLife, lives_of
from penstock.observe.history import HistoryRow, history
from penstock.observe.status_reader import StatusReader
from penstock.protocols import Ledger

RECENT = 80
"""Entries that are read for the charts: once, and then only those that came since."""


class RecentRows:
    """The newest rows of a ledger. Entries never change, so only new ones are read; each costs a request in a store.

    A new rewind is the exception: rows of batches that it took back say so, and all are read again.
    """

    def __init__(self, size: int = RECENT) -> None:
        self._size, self._known, self._reading = size, dict[Position, HistoryRow](), Lock()

    def read(self, ledger: Ledger) -> Sequence[HistoryRow]:
        """Return the rows, newest first. Raises what the ledger raises."""
        with self._reading:
            rows = list(self._rows(ledger))[: self._size]
            if self._known and any(row.kind == "rewound" and row.position not in self._known for row in rows):
                self._known = {}
                rows = list(self._rows(ledger))[: self._size]
            # The decision after it completes a row: until that is there, it is read again.
            complete = next((number for number, row in enumerate(rows) if row.kind == "decided"), len(rows)) + 1
            self._known = {row.position: row for row in rows[complete:]}
            return rows

    def _rows(self, ledger: Ledger) -> Iterator[HistoryRow]:
        below: list[HistoryRow] = []

        def fresh() -> Iterator[Entry]:
            for number, entry in enumerate(ledger.newest_first()):
                if entry.position in self._known:
                    below.extend(row for position, row in self._known.items() if position <= entry.position)
                    return
                if number >= self._size:
                    return
                yield entry

        yield from history(fresh())
        yield from below


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One pipeline. `file` is its file as the command line names it, for commands that the page shows."""

    reader: StatusReader
    open_ledger: Callable[[], Ledger]
    home: str
    file: str
    recent: RecentRows = field(default_factory=RecentRows)

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.reader.pipeline

    def newest_lives(self) -> Sequence[BatchLife]:
        """Return the newest entries with what was measured of them, newest first. Raises what the ledger raises."""
        with closing(self.open_ledger()) as ledger:
            return lives_of(self.recent.read(ledger), home=self.home)

    def lives(self, ledger: Ledger, rows: Sequence[HistoryRow]) -> Sequence[BatchLife]:
        """Return entries of a page with what was measured of them. Those among the newest say what a rewind took back."""
        known = {row.position: row for row in self.recent.read(ledger)}
        return lives_of([known.get(row.position, row) for row in rows], home=self.home)
