"""Every entry says whose it is and where it stands; one that says otherwise is never used."""

from penstock.core.codec import decode_entry
from penstock.core.model import Entry, PipelineName
from penstock.errors import LedgerMismatch


def own_entry(data: bytes, *, pipeline: PipelineName, position: int, location: str) -> Entry:
    """The entry in `data`, read at `position`. Raises LedgerMismatch unless it is this pipeline's and belongs there."""
    entry = decode_entry(data, where=f"Entry {position} of the ledger at {location}")
    require_pipeline(entry.pipeline, pipeline=pipeline, location=location)
    if entry.position != position:
        raise LedgerMismatch(
            f"The ledger at {location} holds the entry of position {entry.position} at position {position}.",
            remedy="Entries were moved by hand: restore the ledger from a backup.",
        )
    return entry


def require_pipeline(found: str, *, pipeline: PipelineName, location: str) -> None:
    """Raises LedgerMismatch if the ledger is another pipeline's."""
    if found != pipeline:
        raise LedgerMismatch(
            f"The ledger at {location} belongs to pipeline {found!r}, not to {pipeline!r}.",
            remedy="Give every pipeline a ledger of its own.",
        )


def gap(entry: Entry, *, location: str) -> LedgerMismatch:
    """The error for an append that would leave a hole: entries that this run saw are gone."""
    return LedgerMismatch(
        f"Position {entry.position} of the ledger at {location} is next, but position {entry.position - 1} is empty.",
        remedy="The ledger was removed or replaced while in use: restore it from a backup.",
    )
