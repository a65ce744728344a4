"""Checks that a ledger entry belongs to its pipeline and stands at its own position; any other is never used."""

from penstock.core.codec import decode_entry
from penstock.core.model import Entry, PipelineName
from penstock.errors import LedgerMismatch


def own_entry(data: bytes, *, pipeline: PipelineName, position: int, location: str) -> Entry:
    """Return the entry in `data`, read at `position`. Raises LedgerMismatch if pipeline or position differ."""
    entry = decode_entry(data, where=f"Entry {position} of the ledger at {location}")
    require_pipeline(entry.pipeline, pipeline=pipeline, location=location)
    if entry.position != position:
        raise LedgerMismatch(
            f"The ledger at {location} holds the entry of position {entry.position} at position {position}.",
            remedy="Entries were moved by hand: restore the ledger from a backup.",
        )
    return entry


def require_pipeline(found: str, *, pipeline: PipelineName, location: str) -> None:
    """Raise LedgerMismatch if the ledger belongs to another pipeline."""
    if found != pipeline:
        raise LedgerMismatch(
            f"The ledger at {location} belongs to pipeline {found!r}, not to {pipeline!r}.",
            remedy="Give every pipeline a ledger of its own.",
        )


def gap(entry: Entry, *, location: str) -> LedgerMismatch:
    """Return the error for an append that would leave a hole: entries that this run saw are gone."""
    return LedgerMismatch(
        f"Position {entry.position} of the ledger at {location} is next, but position {entry.position - 1} is empty.",
        remedy="The ledger was removed or replaced while in use: restore it from a backup.",
    )
