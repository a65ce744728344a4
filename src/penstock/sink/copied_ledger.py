"""Detects that a copy of the ledger, with the same identity, has published: the position of the place's marker shows it."""

from penstock.core.model import Position, Publication
from penstock.errors import LedgerMismatch


def require_no_copy(publication: Publication, marked_at: Position, *, place: str) -> None:
    """Raise LedgerMismatch if this ledger cannot have put the marker of `place` at `marked_at`, below `publication` (I2)."""
    if publication.may_follow_marker_at(marked_at):
        return
    raise LedgerMismatch(
        f"{place} shows what was decided at position {marked_at}, but the ledger that publishes position {publication.position} "
        f"decided nothing there after its position {publication.previous}: a copy of it delivers, too.",
        remedy=f"Stop both runs. Go on with the ledger that decided a batch at position {marked_at} (`penstock history`) and "
        "remove the other one: what both decided would be there twice.",
    )
