"""The options of a source `format: journal`, and what is wrong with them."""

import re
from collections.abc import Iterator, Mapping

from penstock.spec.complaint import Complaint

STARTING, MOST_RECORDS, MOST_BYTES = "startingOffsets", "maxRecordsPerTrigger", "maxBytesPerTrigger"
_KNOWN = (STARTING, MOST_RECORDS, MOST_BYTES)
_COUNT = re.compile(r"[1-9]\d{0,17}")


def journal_complaints(options: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield what is wrong with the options of a journal."""
    known = {name.lower(): name for name in _KNOWN}
    for given, value in options.items():
        name = known.get(given.lower())
        if name is None:
            yield Complaint(message="is not an option of a journal", remedy=f"Known are {', '.join(_KNOWN)}.", at=(given,))
        elif name == STARTING and value.lower() not in {"earliest", "latest"}:
            yield Complaint(
                message=f"should be earliest or latest, found {value!r}",
                remedy="A checkpoint goes on where it stopped.",
                at=(given,),
            )
        elif name != STARTING and not _COUNT.fullmatch(value):
            yield Complaint(
                message=f"should be a whole number from 1 on, found {value!r}", remedy="Write it in digits.", at=(given,)
            )
