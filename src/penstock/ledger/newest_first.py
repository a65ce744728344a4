"""A ledger from its tail on back, and the tail that no pruning may forget."""

from collections.abc import Iterator

from penstock.core.model import Entry, Position
from penstock.protocols import Ledger


def newest_first(ledger: Ledger) -> Iterator[Entry]:
    """One look per entry, so that nothing is held between them; ends where another run prunes meanwhile."""
    entry = ledger.tail()
    while entry is not None:
        yield entry
        entry = ledger.read(Position(entry.position - 1))


def require_tail_kept(tail: Entry | None, *, below: Position) -> None:
    """Raise ValueError for a pruning that would forget the tail, without which a position could be taken again."""
    if tail is None or below > tail.position:
        raise ValueError(f"pruning below {below} would forget the tail")
