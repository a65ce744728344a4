"""One append with a known outcome: an answer that was lost is read back, never guessed.

Source: the nonce rule of docs/PROTOCOL.md; it guards against the retry that meets its own write
and reports failure.
"""

from dataclasses import dataclass

from penstock.errors import OutcomeUnknown, PositionTaken, Retryable
from penstock.model import Entry
from penstock.protocols import Ledger, Within


@dataclass(frozen=True, slots=True)
class Taken:
    """The position holds another writer's entry (None: it held one that is no longer retained)."""

    by: Entry | None


def append_once(ledger: Ledger, entry: Entry, *, within: Within | None = None, tries: int = 5) -> Taken | None:
    """Append `entry` at its position and return None, or tell who holds the position.

    Safe to repeat: the position is conditional and the nonce tells our own entry from any other. Raises Retryable when the
    ledger could not be reached `tries` times; the entry may then be there, and only a new start may look.
    """
    for remaining in reversed(range(tries)):
        try:
            return _try_append(ledger, entry, within)
        except Retryable:  # an append that may have landed is repeated as it was, nonce and all
            if not remaining:
                raise
    raise AssertionError("tries must be positive")


def _try_append(ledger: Ledger, entry: Entry, within: Within | None) -> Taken | None:
    try:
        ledger.append(entry, within=within)
    except PositionTaken:
        return _holder(ledger.read(entry.position), entry)
    except OutcomeUnknown:
        found = ledger.read(entry.position)
        if found is None:
            raise
        return _holder(found, entry)
    return None


def _holder(found: Entry | None, entry: Entry) -> Taken | None:
    return None if found is not None and found.nonce == entry.nonce else Taken(found)
