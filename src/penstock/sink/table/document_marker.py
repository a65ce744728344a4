"""A marker and the last batches as one JSON document, for targets that store a text instead of table rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from penstock.core.codec.fields import DamagedError, items, record, text
from penstock.core.model import Json, LedgerId, PipelineName, Position, Publication, SinkName
from penstock.sink.table.marker import NAMED, TableMarker, identity, marker_from, marker_values

REMEMBERED_BATCHES = 50
"""How many of the last positions are remembered one by one. A zombie that is further behind is refused instead of recognised."""
MARK_FIELDS = frozenset({"marker", "batches"})
NAMED_MARK_FIELDS = MARK_FIELDS | {"ledger_id"}
"""The fields of a mark that carries its ledger's identity."""

_OFFSETS = 2
_OWNER = ("pipeline", "sink")
_NOT_REMEMBERED = frozenset({"format_version", "ledger_id"})
_COLUMNS = (
    *("table_name", "write", "position", "generation", "query_id", "batch_id", "offsets", "schema"),
    *(f"{kind}_{name}" for name in ("decided", "before", "after") for kind in ("rows", "digest")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The marker, and by position the `identity` values of the last batches, with their offsets replaced by a hash."""

    marker: TableMarker
    batches: Mapping[Position, tuple[Any, ...]]

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """Return the `identity` values of the batch at the publication's position, None if it is no longer remembered."""
        found, own = self.batches.get(publication.position), tuple(identity(publication).values())
        return own if found == _remembered(publication) else found

    def after(self, marker: TableMarker, publication: Publication) -> "Mark":
        """Return the mark with one more batch, without those that are too old to be remembered."""
        kept = {at: batch for at, batch in self.batches.items() if at > publication.position - REMEMBERED_BATCHES}
        return replace(self, marker=marker, batches={**kept, publication.position: _remembered(publication)})


def mark_fields(mark: Mark) -> dict[str, Json]:
    """Return the mark as JSON fields, which `mark_from` reads."""
    fields: dict[str, Json] = {key: value for key, value in marker_values(mark.marker).items() if key not in _NOT_REMEMBERED}
    batches: list[Json] = [[at, *batch] for at, batch in sorted(mark.batches.items())]
    named: dict[str, Json] = {} if mark.marker.ledger_id is None else {"ledger_id": mark.marker.ledger_id}
    return {"marker": fields, "batches": batches, **named}


def mark_from(fields: Mapping[str, Any], *, pipeline: PipelineName, sink: SinkName) -> Mark:
    """Return the mark in `fields`, with or without a ledger's identity. Raise DamagedError."""
    ledger_id = LedgerId(text(fields["ledger_id"])) if "ledger_id" in fields else None
    values, batches = record(fields["marker"], frozenset((*_OWNER, *_COLUMNS))), items(fields["batches"])
    try:
        marker = marker_from([NAMED, *(values[name] for name in _COLUMNS)], pipeline, sink, ledger_id=ledger_id)
        return Mark(marker=marker, batches={Position(int(batch[0])): tuple(batch[1:]) for batch in batches})
    except (ValueError, TypeError, IndexError) as damage:
        raise DamagedError(f"expected the values of a marker: {damage!r}") from None


def _remembered(publication: Publication) -> tuple[Any, ...]:
    values = list(identity(publication).values())
    values[_OFFSETS] = sha256(str(values[_OFFSETS]).encode()).hexdigest()[:16]
    return tuple(values)
