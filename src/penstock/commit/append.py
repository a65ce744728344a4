"""One append with a known outcome: an answer that was lost is read back, never guessed.

Source: the nonce rule of docs/PROTOCOL.md; it guards against the retry that meets its own write
and reports failure.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from penstock.core.model import Entry, Generation, Opened, Position
from penstock.errors import Fenced, NotPublishedYet, OutcomeUnknown, PositionTaken, Retryable
from penstock.protocols import InTransaction, Ledger

Sleep = Callable[[float], None]
StopTries = Callable[[RetryCallState], bool]
"""Returns after each failed try whether it was the last one."""

RETRY_TIMEOUT_S = 60.0
"""How long an append or a publication is tried, unless the settings say otherwise."""


@dataclass(frozen=True, slots=True)
class Occupied:
    """The position holds another writer's entry (None: it held one that is no longer retained)."""

    by: Entry | None


def _may_pass(error: BaseException) -> bool:
    """Return whether the next try may succeed. Whoever raised NotPublishedYet has tried for long enough."""
    return isinstance(error, Retryable) and not isinstance(error, NotPublishedYet)


NO_PAUSE = Retrying(stop=stop_after_attempt(5), retry=retry_if_exception(_may_pass), reraise=True)
"""Tries five times at once: for tests, and where nobody would wait for the pauses."""


def with_backoff(stop: StopTries, sleep: Sleep) -> Retrying:
    """Try until `stop` while Retryable is raised, with pauses that grow at random up to 10 seconds."""
    return Retrying(
        stop=stop,  # I11: a run ends, and the next one recovers
        wait=wait_random_exponential(multiplier=0.2, max=10),
        retry=retry_if_exception(_may_pass),
        sleep=sleep,
        reraise=True,
    )


def stop_after_time(limit_s: float, stop_wanted: Callable[[], bool] = bool) -> StopTries:
    """Return the condition that ends tries once `limit_s` have passed or `stop_wanted` returns true, after two tries at least.

    The second try finds out what happened if the answer to the first one was lost. Pauses count in full, also if cut short.
    """

    def is_last(state: RetryCallState) -> bool:
        spent_s = max(state.seconds_since_start or 0.0, state.idle_for)
        return state.attempt_number > 1 and (spent_s >= limit_s or stop_wanted())

    return is_last


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
