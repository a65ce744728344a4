"""How a receiver serves its journal over HTTP to readers that do not see its files. Normative: docs/PROTOCOL.md, section Journal.

Events travel as the frames that are on the disk, so that who reads them compares the checksums that the writer made.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.journal.event import Record
from penstock.journal.frame import BadFrame, decode_frame, seed_of
from penstock.journal.reading import Extent, Place

JOURNAL: Final = "/v1/journal"
BATCH: Final = "/v1/journal/batch"
EVENTS: Final = "/v1/journal/events"
READERS: Final = "/v1/journal/readers"
NEXT: Final = "Penstock-Next"
"""Header of an answer with events: the number of the event that follows them, and the segment and byte where it begins."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class BadAnswer(ValueError):
    """What arrived is not what a receiver sends."""


def encode_extent(extent: Extent | None) -> str:
    """Return the answer that tells what a journal has; None before its first segment."""
    if extent is None:
        return "null"
    numbers = {name: getattr(extent, name) for name in ("first", "next", "segment", "offset")}
    return json.dumps({"journal_id": extent.journal_id, **numbers})


def decode_extent(data: bytes) -> Extent | None:
    """Return what such an answer says. Raises BadAnswer."""
    found = document_in(data)
    if found is None:
        return None
    journal_id = found.get("journal_id")
    if not isinstance(journal_id, str) or not journal_id:
        raise BadAnswer("a journal without an id")
    return Extent(journal_id=journal_id, **{name: number_in(found, name) for name in ("first", "next", "segment", "offset")})


def encode_place(next_: int, place: Place) -> str:
    """Return the number of an event, and where it begins."""
    return f"{next_} {place.segment} {place.offset}"


def decode_place(text: str) -> tuple[int, Place]:
    """Return what such a text says. Raises BadAnswer."""
    numbers = text.split(" ")
    if len(numbers) != 3 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise BadAnswer("no place of an event")
    next_, segment, offset = map(int, numbers)
    return next_, Place(segment, offset)


def records_in(data: bytes, next_: int, *, first: int, end: int, journal_id: str) -> Iterator[Record]:
    """Yield the events `first` to `next_` - 1, some of those below `end`: their frames are all of `data`. Raises BadAnswer."""
    if not first < next_ <= end:
        raise BadAnswer(f"events up to {next_}, asked for were {first} to {end - 1}")
    at, seed = 0, seed_of(journal_id)
    for sequence in range(first, next_):
        try:
            frame = decode_frame(data, at, seed=seed)
        except BadFrame as bad:
            raise BadAnswer(f"{bad} where event {sequence} should be") from bad
        if frame.record.sequence != sequence:
            raise BadAnswer(f"event {frame.record.sequence} where event {sequence} should be")
        at += frame.size
        yield frame.record
    if at != len(data):
        raise BadAnswer(f"{len(data) - at} bytes behind event {next_ - 1}")


def document_in(data: bytes) -> Mapping[str, Any] | None:
    """Return a JSON object, None for null. Raises BadAnswer."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadAnswer("no JSON") from None
    if found is not None and not isinstance(found, dict):
        raise BadAnswer("no object of JSON")
    return found


def number_in(document: Mapping[str, Any], name: str) -> int:
    """Return a whole number that is 0 or more. Raises BadAnswer."""
    found = document.get(name)
    if type(found) is not int or found < 0:
        raise BadAnswer(f"no number {name}")
    return found


def text_in(document: Mapping[str, Any], name: str) -> str:
    """Return a text that is not empty and has UTF-8. Raises BadAnswer."""
    found = document.get(name)
    if not isinstance(found, str) or not found or _SURROGATE.search(found):
        raise BadAnswer(f"no {name}")
    return found


def flag_in(document: Mapping[str, Any], name: str) -> bool:
    """Return true or false. Raises BadAnswer."""
    found = document.get(name)
    if not isinstance(found, bool):
        raise BadAnswer(f"{name} is neither true nor false")
    return found
