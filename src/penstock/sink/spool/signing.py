"""Whose a place is: an empty file in it names an entry of the ledger that swept it last.

`ledger-g<generation>-<position>-<nonce>.id`: generations and batches, and so what is dead, are counted by each ledger for itself.
A place without such a file is anybody's, as those are that were made before there were any.
"""

import re
from collections.abc import Sequence, Set

from penstock.diskreason import trouble_of
from penstock.errors import Retryable
from penstock.faults import FaultPoint
from penstock.model import Entry, Generation, Nonce, Position
from penstock.protocols import Signature
from penstock.sink.spool.place import ID_SUFFIX, Place, Spooled

SIGN = FaultPoint("spool.sign", "The spool of a sink is signed with an entry of the ledger.")

_NAME = re.compile(r"ledger-g(\d+)-(\d+)-([0-9a-f]{16})" + re.escape(ID_SUFFIX))


def signatures_in(place: Place) -> Sequence[Signature]:
    """Those that are there. Raises Retryable, and what a store raises."""
    try:
        names = [spooled.name for spooled in place.spooled() if spooled.upload is None]
    except OSError as cause:
        raise _failed(place, cause) from cause
    return [_signature(place, found) for found in map(_NAME.fullmatch, names) if found is not None]


def sign(place: Place, entry: Entry, *, instead_of: Set[str]) -> Set[str]:
    """Sign `place`, then remove the names `instead_of`; give the names that count now. Raises as `signatures_in`."""
    name = f"ledger-g{entry.generation}-{entry.position}-{entry.nonce}{ID_SUFFIX}"
    try:
        with SIGN.around(error=OSError, lost=OSError):
            place.identify(name)
        for former in instead_of - {name}:
            place.remove(Spooled(name=former))
    except OSError as cause:
        raise _failed(place, cause) from cause
    return frozenset({name})


def _signature(place: Place, found: "re.Match[str]") -> Signature:
    generation, position, nonce = found.groups()
    return Signature(
        place=place.where,
        name=found[0],
        generation=Generation(int(generation)),
        position=Position(int(position)),
        nonce=Nonce(nonce),
    )


def _failed(place: Place, cause: OSError) -> Retryable:
    trouble = trouble_of(cause)
    return Retryable(
        f"Whose the spool {place.where} is cannot be read or written: {trouble.reason}.",
        remedy=f"{trouble.advice}, then try again.",
    )
