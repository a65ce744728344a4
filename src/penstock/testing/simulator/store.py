"""The real log ledger over a store in single steps: both are checked against the true history; invariant I12."""

from collections.abc import Iterator
from functools import partial

from penstock.core.model import Entry, PipelineName, Position
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.protocols import InTransaction
from penstock.testing.simulator.schedule import Stepper, ViolationError
from penstock.testing.simulator.targets import History


class SteppedStore:
    """A `ConditionalStore` over the shared store, as one driver uses it."""

    location = "simulated"

    def __init__(self, shared: MemoryStore, history: History, stepper: Stepper) -> None:
        self._shared = shared
        self._history = history
        self._stepper = stepper

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._stepper.do("put_if_absent", key, partial(self._create, key, data))

    def get(self, key: str) -> bytes | None:
        return self._stepper.do("get", key, partial(self._shared.get, key))

    def put(self, key: str, data: bytes) -> None:
        self._stepper.do("put", key, partial(self._overwrite, key, data))

    def delete(self, key: str) -> None:
        self._stepper.do("delete", key, partial(self._delete, key))

    def keys(self, folder: str) -> Iterator[str]:
        return self._stepper.do("keys", folder, partial(self._shared.keys, folder))

    def _create(self, key: str, data: bytes) -> bool:
        created = self._shared.put_if_absent(key, data)
        if created:
            self._history.created(key, data)
        return created

    def _overwrite(self, key: str, data: bytes) -> None:
        self._history.overwritten(key)
        self._shared.put(key, data)

    def _delete(self, key: str) -> None:
        self._history.deleted(key)
        self._shared.delete(key)

    def sweep(self) -> None:
        """Do nothing: puts in memory leave nothing behind."""


class WatchedLedger(LogLedger):
    """A `LogLedger` whose wrong answers are found when they are given, not when they do harm."""

    def __init__(self, store: SteppedStore, history: History, *, pipeline: PipelineName) -> None:
        super().__init__(store, pipeline=pipeline)
        self._history = history

    def append(self, entry: Entry, *, within: InTransaction | None = None) -> None:
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
