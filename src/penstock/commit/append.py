"""One append with a known outcome: an answer that was lost is read back, never guessed.

Source: the nonce rule of docs/PROTOCOL.md; it guards against the retry that meets its own write
and reports failure.
"""

from dataclasses import dataclass

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from penstock.errors import OutcomeUnknown, PositionTaken, Retryable
from penstock.model import Entry
from penstock.protocols import Ledger, Within


@dataclass(frozen=True, slots=True)
class Taken:
    """The position holds another writer's entry (None: it held one that is no longer retained)."""

    by: Entry | None


AT_ONCE = Retrying(stop=stop_after_attempt(5), retry=retry_if_exception_type(Retryable), reraise=True)


def append_once(ledger: Ledger, entry: Entry, *, within: Within | None = None, retrying: Retrying = AT_ONCE) -> Taken | None:
    """Append `entry` at its position and return None, or tell who holds the position.

    Safe to repeat, as `retrying` says, with the entry as it was, nonce and all: the position is conditional and the nonce tells
    our own entry from any other. Raises Retryable when the ledger could not be reached; the entry may then be there, and only a
    new start may look.
    """
    return retrying(_try_append, ledger, entry, within)


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
