"""What the marker of an Iceberg table says: JSON in a property of the table, which the summary of the snapshot repeats."""

from collections.abc import Mapping
from typing import Any

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import BatchId, Generation, LedgerId, Position, Publication, QueryId, Totals
from penstock.sink.lake.log import Change
from penstock.sink.lake.write_mode import TableContent


def notes_of(change: Change, publication: Publication) -> Mapping[str, Any]:
    """Return what the property says. The snapshot's summary repeats it, for people and for a look at an earlier batch."""
    content, written_by = change.content, change.written_by
    return {
        "position": publication.position,
        "ledger_id": publication.ledger_id,
        "generation": publication.generation,
        "query_id": publication.batch.query_id,
        "batch_id": publication.batch.batch_id,
        "rows": publication.totals.rows,
        **({} if content is None else {"write": content.write, "decided": _pair(content.decided), "shown": _pair(content.shown)}),
        **({} if written_by is None else {"written_by": written_by}),
    }


def _pair(totals: Totals) -> list[int | str]:
    """Return rows and digest, the digest as a text: many readers of JSON take numbers for floating point."""
    return [totals.rows, f"{totals.digest:016x}"]


def content_of(noted: Mapping[str, Any]) -> TableContent:
    """Return what the marker counts."""
    decided, shown = (Totals(rows=noted[name][0], digest=int(noted[name][1], 16)) for name in ("decided", "shown"))
    return TableContent(write=noted["write"], decided=decided, shown=shown)


def mark_of(noted: Mapping[str, Any]) -> HighWaterMark:
    """Return the marker itself."""
    return HighWaterMark(
        position=Position(noted["position"]),
        ledger_id=None if noted["ledger_id"] is None else LedgerId(noted["ledger_id"]),
        generation=Generation(noted["generation"]),
        query_id=QueryId(noted["query_id"]),
        batch_id=BatchId(noted["batch_id"]),
    )
