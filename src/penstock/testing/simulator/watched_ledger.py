"""The real log ledger, with every answer checked against the true history; invariant I12."""

from penstock.core.model import Entry, PipelineName, Position
from penstock.ledger.log import LogLedger
from penstock.protocols import Within
from penstock.testing.simulator.errors import ViolationError
from penstock.testing.simulator.history import History
from penstock.testing.simulator.store import SteppedStore


class WatchedLedger(LogLedger):
    """A `LogLedger` whose wrong answers are found when they are given, not when they do harm."""

    def __init__(self, store: SteppedStore, history: History, *, pipeline: PipelineName) -> None:
        super().__init__(store, pipeline=pipeline)
        self._history = history

    def append(self, entry: Entry, *, within: Within | None = None) -> None:
        """Check that an acknowledged entry is in the ledger."""
        super().append(entry, within=within)
        self._require_real(entry, "appended")

    def tail(self) -> Entry | None:
        """Check that the tail is no older than it was at the call."""
        before = self._history.length
        entry = super().tail()
        if entry is not None:
            self._require_real(entry, "the tail")
        if (0 if entry is None else entry.position) < before:
            raise ViolationError(f"I12: the tail is told to be {entry and entry.position}, but it was {before}")
        return entry

    def read(self, position: Position) -> Entry | None:
        """Check that an entry reported absent is not written yet, or no longer retained."""
        before = self._history.length
        entry = super().read(position)
        if entry is not None:
            self._require_real(entry, "read")
        elif self._history.floor <= position <= before:
            raise ViolationError(f"I12: entry {position} is told to be absent")
        return entry

    def _require_real(self, entry: Entry, how: str) -> None:
        if self._history.nonces.get(entry.position) != entry.nonce:
            raise ViolationError(
                f"I12: entry {entry.position} of generation {entry.generation} is told to be {how}, but it is none"
            )
