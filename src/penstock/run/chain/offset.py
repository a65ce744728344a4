"""The offset of a source `format: penstock`, as Spark logs it: up to which position of a ledger a pipeline's table is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.commit.table_batches import TableBatch
from penstock.core.model import BatchId, LedgerId, Nonce, OffsetRange, Position, SinkName


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOffset:
    """Everything of ledger `ledger_id` above `begin`, where the query began, and up to `position` is delivered.

    `nonce`: of the entry at `position`, by which another copy of the ledger is told apart. For people and lineage: `batch_id` is
    the batch there, None before the first one, `rows` how many the table had up to there, `sources` what that batch read up to.
    """

    ledger_id: LedgerId | None
    sink: SinkName
    begin: Position
    position: Position
    nonce: Nonce | None = None
    batch_id: BatchId | None = None
    rows: int = 0
    sources: Mapping[str, Any] = field(default_factory=dict)

    def after(self, batch: TableBatch, *, ledger_id: LedgerId | None) -> "ChainOffset":
        """Return the offset at which `batch` is delivered, too."""
        return ChainOffset(
            ledger_id=ledger_id or self.ledger_id,
            sink=self.sink,
            begin=self.begin,
            position=batch.position,
            nonce=batch.nonce,
            batch_id=batch.batch_id,
            rows=batch.table_rows,
            sources={each.source: _end_of(each) for each in batch.sources},
        )

    def written(self) -> dict[str, Any]:
        """Return it as Spark logs it, in JSON."""
        return {
            "ledger": self.ledger_id,
            "sink": self.sink,
            "begin": self.begin,
            "position": self.position,
            "nonce": self.nonce,
            "batch": self.batch_id,
            "rows": self.rows,
            "sources": dict(self.sources),
        }


def read_offset(logged: Mapping[str, Any]) -> ChainOffset | None:
    """Return the offset that Spark logged; None for an empty one, which a first batch has where nothing says how it began."""
    if not logged:
        return None
    return ChainOffset(
        ledger_id=logged["ledger"],
        sink=logged["sink"],
        begin=logged["begin"],
        position=logged["position"],
        nonce=logged["nonce"],
        batch_id=logged["batch"],
        rows=logged["rows"],
        sources=logged["sources"],
    )


def offset_in(text: str | None) -> ChainOffset | None:
    """Return the offset in the text that Spark logged, None for none."""
    return None if text is None else read_offset(json.loads(text))


def first_above(start: ChainOffset | None, end: ChainOffset) -> Position:
    """Return the position above which a batch between two offsets begins.

    Where a query begins is asked for anew when its first batch is planned again, and the table may have grown meanwhile: what the
    end says of it holds.
    """
    return end.begin if start is None or start.begin != end.begin else start.position


def _end_of(read: OffsetRange) -> Any:
    try:
        return None if read.end is None else json.loads(read.end)
    except ValueError:  # Spark's `rate` and others log plain text
        return read.end
