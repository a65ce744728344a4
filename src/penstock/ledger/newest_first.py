"""Reading a ledger from its tail backwards, and the rule that pruning must leave the tail."""

from collections.abc import Iterator

from penstock.core.model import Entry, Position
from penstock.protocols import Ledger


def newest_first(ledger: Ledger) -> Iterator[Entry]:
    """Yield entries from the tail backwards: one read each, no lock in between. Ends where another run prunes meanwhile."""
    entry = ledger.tail()
    while entry is not None:
        yield entry
        entry = ledger.read(Position(entry.position - 1))


def require_tail_kept(tail: Entry | None, *, below: Position) -> None:
    """Raise ValueError if pruning `below` would delete the tail, without which a position could be taken again."""
    if tail is None or below > tail.position:
        raise ValueError(f"pruning below {below} would forget the tail")
