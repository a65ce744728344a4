"""One page of a ledger's entries, and the search for a batch or a time. Costs a page, however many entries there are."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from penstock.core.model import BatchId, Decided, Entry, Position, Rewound
from penstock.errors import Retryable
from penstock.observe.history import HistoryRow, history
from penstock.protocols import Ledger

PAGE_ROWS = 50
_NEWER_LOOKED_AT = 4
"""Entries above a page that are read: the duration of a publication stands in the decision after it."""
_BATCH = re.compile(r"(?:batch )?(\d+)")
_FIRST = Position(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """Some entries of a ledger, newest first. `oldest` and `newest` are the positions that the ledger retains; 0 if it is empty.

    `wanted` is what was searched for, and `missing` says that it is not there.
    """

    rows: tuple[HistoryRow, ...]
    oldest: int
    newest: int
    size: int = PAGE_ROWS
    wanted: str = ""
    missing: str | None = None

    @property
    def older(self) -> int | None:
        """The position that the page of older entries ends with, None on the last page."""
        last = self.rows[-1].position if self.rows else 0
        return last - 1 if last > self.oldest else None

    @property
    def newer(self) -> int | None:
        """The position that the page of newer entries ends with, None on the first page."""
        first = self.rows[0].position if self.rows else self.newest
        return min(self.newest, first + self.size) if first < self.newest else None


def history_page(ledger: Ledger, *, up_to: int | None = None, wanted: str = "", size: int = PAGE_ROWS) -> HistoryPage:
    """Return the page that ends with position `up_to`, or with what is `wanted`: a batch's number, or a date, with time or not.

    Without either, or if nothing is found, it is the newest page. Raises what the ledger raises.
    """
    tail = ledger.tail()
    if tail is None:
        return HistoryPage(rows=(), oldest=0, newest=0, size=size, wanted=wanted)
    oldest = _first(lambda position: ledger.read(position) is not None, _FIRST, tail.position) or tail.position
    found, missing = (None, None) if not wanted.strip() else _search(ledger, wanted.strip(), oldest=oldest, tail=tail)
    last = min(found or up_to or tail.position, tail.position)
    rows = tuple(_rows(ledger, last=Position(max(last, oldest)), size=size, tail=tail))
    return HistoryPage(rows=rows, oldest=oldest, newest=tail.position, size=size, wanted=wanted.strip(), missing=missing)


def entry_page(ledger: Ledger, position: int) -> tuple[Entry, HistoryRow] | None:
    """Return one entry with its row, None if the ledger does not retain it."""
    tail, entry = ledger.tail(), ledger.read(Position(position)) if position >= _FIRST else None
    if entry is None or tail is None:
        return None
    rows = tuple(_rows(ledger, last=entry.position, size=1, tail=tail))
    return (entry, rows[0]) if rows else None


def _rows(ledger: Ledger, *, last: Position, size: int, tail: Entry) -> Iterator[HistoryRow]:
    above = min(tail.position, last + _NEWER_LOOKED_AT)
    for row in history(_downwards(ledger, above, above - last + size)):
        if row.position <= last:
            yield row


def _downwards(ledger: Ledger, first: int, number: int) -> Iterator[Entry]:
    for position in range(first, max(0, first - number), -1):
        entry = ledger.read(Position(position))
        if entry is not None:
            yield entry


def _search(ledger: Ledger, wanted: str, *, oldest: int, tail: Entry) -> tuple[int | None, str | None]:
    """Return the position of what is wanted, or a sentence that it is not there."""
    batch = _BATCH.fullmatch(wanted)
    if batch is not None:
        return _decision_of(ledger, BatchId(int(batch[1])), oldest=oldest, tail=tail)
    try:
        moment = datetime.fromisoformat(wanted.replace("Z", "+00:00")).astimezone()
    except (ValueError, OverflowError, OSError):
        return None, "Search for the number of a batch, or for a date or time, such as 2026-11-29 08:30."
    time_ms = int(moment.timestamp() * 1000)
    later = _first(lambda position: _entry(ledger, position).written_at_ms > time_ms, oldest, tail.position)
    position = tail.position if later is None else later - 1
    return (position, None) if position >= oldest else (None, "Every entry that the ledger retains is newer than that.")


def _decision_of(ledger: Ledger, batch_id: BatchId, *, oldest: int, tail: Entry) -> tuple[int | None, str | None]:
    """Return the newest position that decides `batch_id` and was not taken back; of one that was, where, and a sentence.

    Batch numbers grow from each adoption and each rewind on.
    """
    last: Entry | None = tail
    taken = _TakenBack()
    while last is not None and last.position >= oldest:
        begin = max(oldest, last.summary.adopted_at or 0, last.summary.rewound_at or 0)
        found = _first(lambda at: (_entry(ledger, at).summary.next_batch_id or 0) > batch_id, begin, last.position)
        body = None if found is None else _entry(ledger, found).body
        if found is not None and isinstance(body, Decided) and body.decision.batch.batch_id == batch_id:
            rewound_at = taken.at(found)
            return (found, None) if rewound_at is None else (rewound_at, f"Batch {batch_id} was taken back by the rewind there.")
        taken.see(_entry(ledger, begin))
        last = ledger.read(Position(begin - 1)) if begin > oldest else None
    return None, f"The ledger retains no decision of batch {batch_id}."


class _TakenBack:
    """The rewinds above what is looked at, from the newest on."""

    def __init__(self) -> None:
        self._acts: list[tuple[int, Position]] = []

    def see(self, entry: Entry) -> None:
        if isinstance(entry.body, Rewound):
            self._acts.append((entry.position, entry.body.to))

    def at(self, position: int) -> int | None:
        """Return the position of the newest rewind that took back what was decided at `position`, None if none did."""
        return next((act for act, to in self._acts if to < position), None)


def _entry(ledger: Ledger, position: int) -> Entry:
    """Return an entry that is retained. Raises Retryable if a driver pruned it meanwhile."""
    entry = ledger.read(Position(position))
    if entry is None:
        raise Retryable(f"The ledger retains position {position} no longer: a driver pruned it just now.", remedy="Look again.")
    return entry


def _first(holds: Callable[[Position], bool], low: int, high: int) -> int | None:
    """Return the first position of a range from which on `holds` is true, None if it is false for all."""
    if not holds(Position(high)):
        return None
    while low < high:
        middle = (low + high) // 2
        if holds(Position(middle)):
            high = middle
        else:
            low = middle + 1
    return low
