"""What all kinds of ledgers share: reading backwards, and the refusal of entries that are not their own."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from penstock.core.codec import decode_entry
from penstock.core.model import Entry, PipelineName, Position
from penstock.errors import LedgerMismatch


class BaseLedger(ABC):
    """The common part of every `Ledger`."""

    _pipeline: PipelineName

    @property
    @abstractmethod
    def location(self) -> str: ...

    @abstractmethod
    def tail(self) -> Entry | None: ...

    @abstractmethod
    def read(self, position: Position) -> Entry | None: ...

    def newest_first(self) -> Iterator[Entry]:
        """Costs one read per entry, and holds no lock or transaction in between. Ends early if another run prunes meanwhile."""
        entry = self.tail()
        while entry is not None:
            yield entry
            entry = self.read(Position(entry.position - 1))

    def _decode(self, data: bytes, position: int) -> Entry:
        """Return the entry in `data`, read at `position`. Raises LedgerMismatch if pipeline or position differ."""
        entry = decode_entry(data, where=f"Entry {position} of the ledger at {self.location}")
        self._require_pipeline(entry.pipeline)
        if entry.position != position:
            raise LedgerMismatch(
                f"The ledger at {self.location} holds the entry of position {entry.position} at position {position}.",
                remedy="Entries were moved by hand: restore the ledger from a backup.",
            )
        return entry

    def _require_pipeline(self, found: str) -> None:
        if found != self._pipeline:
            raise LedgerMismatch.of_another(found, own=self._pipeline, location=self.location)

    def _gap(self, entry: Entry) -> LedgerMismatch:
        """Return the error for an append that would leave a hole: entries that this run saw are gone."""
        return LedgerMismatch(
            f"Position {entry.position} of the ledger at {self.location} is next, but position {entry.position - 1} is empty.",
            remedy="The ledger was removed or replaced while in use: restore it from a backup.",
        )


def require_tail_kept(tail: Entry | None, *, below: Position) -> None:
    """Raise ValueError if pruning `below` would delete the tail, without which a position could be taken again."""
    if tail is None or below > tail.position:
        raise ValueError(f"pruning below {below} would forget the tail")
