"""How many rows were decided lately for one sink."""

from penstock.core.model import Entry, Position, SinkName
from penstock.protocols import Ledger


def rows_since(ledger: Ledger, sink: SinkName, since_ms: int) -> int:
    """Return how many rows the entries written at or after `since_ms` decided for `sink`, as far as the ledger retains them.

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
    if before is None and low:  # forgotten, and with it what `first` itself decided
        return _rows(tail, sink) - _rows(first, sink)
    return _rows(tail, sink) - (0 if before is None else _rows(before, sink))


def _rows(entry: Entry, sink: SinkName) -> int:
    return sum(totals.rows for totals in entry.summary.totals.get(sink, {}).values())
