"""How many rows were decided lately for one sink."""

from penstock.core.model import Entry, Position, SinkName
from penstock.core.replay import Replayed
from penstock.protocols import Ledger


def rows_since(ledger: Ledger, sink: SinkName, since_ms: int) -> int:
    """Return how many rows the entries written at or after `since_ms` decided for `sink`, as far as the ledger retains them.

    Replays are left out: what they put aside was there before.

    Compares the totals of the newest entry with those of the newest one before that time, which is found by halving. The times
    are those of the drivers' clocks.
    """
    tail = ledger.tail()
    if tail is None or tail.written_at_ms < since_ms or not _rows(tail, sink):
        return 0
    before: Entry | None = None
    low, high, first = 0, int(tail.position), tail
    while high - low > 1:
        middle = (low + high) // 2
        entry = ledger.read(Position(middle))
        if entry is None or entry.written_at_ms < since_ms:
            low, before = middle, entry
        else:
            high, first = middle, entry
    replayed = _rows_replayed(ledger, tail, sink, since_ms)
    if before is None and low:  # forgotten, and with it what `first` itself decided
        return _rows(tail, sink) - _rows(first, sink) - replayed
    return _rows(tail, sink) - (0 if before is None else _rows(before, sink)) - replayed


def _rows_replayed(ledger: Ledger, tail: Entry, sink: SinkName, since_ms: int) -> int:
    """Return how many of these rows are receipts, or were in the quarantine before. Costs two reads for each replay."""
    rows, at = 0, tail.summary.replayed_at
    while at is not None and (entry := ledger.read(at)) is not None and entry.written_at_ms >= since_ms:
        if isinstance(entry.body, Replayed):
            rows += entry.body.decision.totals_of(sink).rows
        before = ledger.read(Position(at - 1))
        at = None if before is None else before.summary.replayed_at
    return rows


def _rows(entry: Entry, sink: SinkName) -> int:
    return sum(totals.rows for totals in entry.summary.totals.get(sink, {}).values())
