"""Forgetting the ledger's oldest entries, now and then, after a batch."""

from penstock.core.model import Position
from penstock.errors import Failed, Retryable
from penstock.protocols import Ledger

RETAINED_ENTRIES = 10_000
PRUNE_EVERY = 1_000


class Pruning:
    """Keeps the newest `retained` entries of a ledger; asks it at most once in `every` entries, and again where that failed."""

    def __init__(self, ledger: Ledger, *, retained: int, every: int) -> None:
        self._ledger, self._retained, self._every = ledger, retained, every
        self._is_due = False

    def after(self, tail: Position) -> tuple[str, ...]:
        """Called after each batch, with the position of the ledger's tail. Returns warnings: entries that stay delay no batch."""
        self._is_due = self._is_due or (tail % self._every == 0 and tail > self._retained)
        if not self._is_due:
            return ()
        try:
            self._ledger.prune(below=Position(tail - self._retained))
        except (Retryable, Failed) as error:
            return (f"The ledger at {self._ledger.location} could not be pruned: {error}",)
        self._is_due = False
        return ()
