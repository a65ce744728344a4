"""The marker of a Delta table: application versions, which every snapshot has, and notes of the commit that set them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from deltalake import Transaction

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import BatchId, Generation, LedgerId, PipelineName, Position, Publication, QueryId, SinkName

_ID_PARTS: Final = 4
_ID_DIGITS: Final = 8
_NOTE: Final = "penstock."
"""Begins the names of notes in a commit."""


def marker_from(version_of: Callable[[str], int | None], application: str) -> HighWaterMark | None:
    """Return the marker as a snapshot has it, None without one. `version_of` returns the version of an application there."""
    position = version_of(application)
    if position is None:
        return None
    parts = [version_of(_id_part(application, part)) for part in range(_ID_PARTS)]
    digits = "".join(f"{part:0{_ID_DIGITS}x}" for part in parts if part is not None)
    ledger_id = None if None in parts else LedgerId(digits)
    return HighWaterMark(position=Position(position), ledger_id=ledger_id, generation=None, query_id=None, batch_id=None)


def versions_of(publication: Publication) -> Iterator[Transaction]:
    """Yield the marker's application versions. All of them conflict with a commit of any ledger for the same sink (I2)."""
    application = application_id(publication.pipeline, publication.sink)
    yield Transaction(application, publication.position)
    if publication.ledger_id is not None:
        digits = publication.ledger_id
        for part in range(_ID_PARTS):
            yield Transaction(_id_part(application, part), int(digits[part * _ID_DIGITS : (part + 1) * _ID_DIGITS], 16))


def notes_of(publication: Publication, **others: str) -> dict[str, str]:
    """Return the notes of the commit, for people and for a start that compares the marker with the ledger."""
    notes = {
        "pipeline": publication.pipeline,
        "sink": publication.sink,
        "position": str(publication.position),
        "generation": str(publication.generation),
        "query_id": publication.batch.query_id,
        "batch_id": str(publication.batch.batch_id),
        "rows": str(publication.totals.rows),
        **others,
    }
    if publication.ledger_id is not None:
        notes["ledger_id"] = publication.ledger_id
    return {f"{_NOTE}{name}": value for name, value in notes.items()}


def noted_in(commit: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what a commit's notes say of a publication, without the beginning of their names."""
    return {key[len(_NOTE) :]: str(value) for key, value in commit.items() if key.startswith(_NOTE)}


def mark_of(notes: Mapping[str, str]) -> HighWaterMark:
    """Return the marker that a commit with these notes set, as `noted_in` returns them."""
    return HighWaterMark(
        position=Position(int(notes["position"])),
        ledger_id=LedgerId(notes["ledger_id"]) if "ledger_id" in notes else None,
        generation=Generation(int(notes["generation"])),
        query_id=QueryId(notes["query_id"]),
        batch_id=BatchId(int(notes["batch_id"])),
    )


def application_id(pipeline: PipelineName, sink: SinkName) -> str:
    """Return the application's id. It names no generation: a driver of an older one must conflict with one of a newer one."""
    return f"penstock:{pipeline}:{sink}"


def _id_part(application: str, part: int) -> str:
    return f"{application}:ledger:{part}"
