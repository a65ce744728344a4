"""The rig that a sink brings to the suite: its target, and how to read and damage it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from penstock.core.model import NEWEST_ROW_DIGEST, BatchId, Generation, LedgerId, PipelineName, RowDigest, SweepCut
from penstock.ledger.open import open_ledger
from penstock.protocols import HashesRows, Ledger, Sink
from penstock.testing.conformance.rows import SCHEMA, Row, make_rows

PIPELINE: Final = PipelineName("conformance")
LEDGER_ID: Final = LedgerId("5e" * 16)
"""The ledger of publications that a test decides itself."""
DAMAGES: Final = ("lost", "doubled", "changed", "foreign", "swapped")

_EVERYTHING = SweepCut(
    pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(1 << 40), batch_id=BatchId(1 << 40), kept=frozenset()
)


class SinkRig(ABC):
    """One target below an empty `directory`, and how the suite reads it from outside. Picklable, for other processes.

    Class attributes state what the target promises; the defaults are those of a transactional append.
    """

    schema: str = SCHEMA
    """Spark's JSON of the rows. Use the columns of `rows.SCHEMA`, or override `rows` as well."""
    whole_batches: bool = True
    """Whether readers see a batch atomically. False: only each piece (rows of one attempt with the same `unit_of`)."""

    row_digest: RowDigest = NEWEST_ROW_DIGEST
    """The kind of row hashes in the ledger."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abstractmethod
    def make(self) -> Sink:
        """Return a new sink on the same target, not prepared yet."""

    def make_hashing(self) -> Sink:
        """Return `make()`, set to the ledger's kind of row hashes."""
        sink = self.make()
        if isinstance(sink, HashesRows):
            sink.use_row_digest(self.row_digest)
        return sink

    @abstractmethod
    def read_back(self) -> Iterable[Row]:
        """Return all rows that a reader sees now, with other code than the sink's where possible; none without a target."""

    def rows(self, ids: Iterable[int]) -> list[Row]:
        """Return one row for each id, always the same. Override it where the target's types lack a value, and document that."""
        return make_rows(ids)

    def ledger(self) -> Ledger:
        """Return the ledger to deliver by, always the same. Override it with one in the sink's database to share transactions."""
        return open_ledger(str(self.directory / "ledger"), pipeline=PIPELINE)

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        """Return what the target shows after these batches. Override it for sinks that do not append."""
        return [row for batch in batches for row in batch]

    def unit_of(self, row: Row) -> object:  # noqa: ARG002 - for sinks whose attempts stage several pieces
        """Return which piece of its attempt a row belongs to, where readers may see an attempt's pieces one after the other."""
        return None

    def leftovers(self) -> Sequence[str]:
        """Return the staging that exists: by default what a sweep that spares nothing would collect. Better override it."""
        sink = self.make()
        sink.prepare(pipeline=PIPELINE, schema=self.schema)
        try:
            return sink.sweep(_EVERYTHING, dry_run=True)
        finally:
            sink.close()

    def damage(self, kind: str) -> None:
        """Change published content behind the sink's back, so that a row is lost, doubled, changed or foreign (see DAMAGES).

        `swapped`: a value moves into a column that was NULL, as `rows.swapped` does with the row of id `rows.SWAPPED`.
        """
        raise NotImplementedError(kind)

    def lose_staging(self) -> None:
        """Destroy or damage what is staged. For `StagingLossContract`; inline staging cannot be lost."""
        raise NotImplementedError
