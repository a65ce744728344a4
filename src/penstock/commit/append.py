"""One append with a known outcome: an answer that was lost is read back, never guessed.

Source: the nonce rule of docs/PROTOCOL.md; it guards against the retry that meets its own write
and reports failure.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from penstock.core.model import Entry, Generation, Opened, Position
from penstock.errors import Fenced, OutcomeUnknown, PositionTaken, Retryable
from penstock.protocols import InTransaction, Ledger

Sleep = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Occupied:
    """The position holds another writer's entry (None: it held one that is no longer retained)."""

    by: Entry | None


NO_PAUSE = Retrying(stop=stop_after_attempt(5), retry=retry_if_exception_type(Retryable), reraise=True)


def with_backoff(tries: int, sleep: Sleep) -> Retrying:
    """Try up to `tries` times while Retryable is raised, with pauses that grow at random up to 10 seconds."""
    return Retrying(
        stop=stop_after_attempt(tries),  # I11: a run ends, and the next one recovers
        wait=wait_random_exponential(multiplier=0.2, max=10),
        retry=retry_if_exception_type(Retryable),
        sleep=sleep,
        reraise=True,
    )


def append_once(
    ledger: Ledger, entry: Entry, *, within: InTransaction | None = None, retrying: Retrying = NO_PAUSE
) -> Occupied | None:
    """Append `entry` at its position and return None; return `Occupied` if another writer holds the position.

    Repeats the append as `retrying` says. That is safe: the position is conditional, and the nonce tells our own entry from any
    other. Raises Retryable if every try failed. The entry may be in the ledger all the same: only a new start may find out.
    """
    return retrying(_try_append, ledger, entry, within)


def _try_append(ledger: Ledger, entry: Entry, within: InTransaction | None) -> Occupied | None:
    try:
        ledger.append(entry, within=within)
    except PositionTaken:
        return _holder(ledger.read(entry.position), entry)
    except OutcomeUnknown:  # raised again if the position is empty: it is Retryable, so the same entry is appended again
        found = ledger.read(entry.position)  # I12
        if found is None:
            raise
        return _holder(found, entry)
    return None


def _holder(found: Entry | None, entry: Entry) -> Occupied | None:
    return None if found is not None and found.nonce == entry.nonce else Occupied(found)


def fenced_by(taken: Occupied, *, generation: Generation, position: Position) -> Fenced:
    """Return the error for a run of `generation` that found another writer's entry at its next position."""
    if taken.by is None:
        found = "an entry that is no longer retained"
    else:
        owner = taken.by.body.owner if isinstance(taken.by.body, Opened) else "another writer"
        found = f"generation {taken.by.generation} by {owner}"
    return Fenced(
        f"This run is generation {generation}, but position {position} of the ledger holds {found}.",
        remedy="A newer run owns the pipeline: let it work, or stop it before you start another.",
    )
