"""Signatures of a place: an empty file names the ledger that swept the place last, and an entry of that ledger.

The file is `ledger-g<generation>-<position>-<nonce>-<ledger_id>.id`. Each ledger counts its own generations and batches, and so
decides only for itself what is dead. An older Penstock wrote no `ledger_id`. A place without a signature is free for any ledger;
so are places that were made before there were signatures.
"""

import re
from collections.abc import Iterable, Sequence, Set
from contextlib import AbstractContextManager

from penstock.core.faults import FaultPoint
from penstock.core.model import Entry, Generation, LedgerId, Nonce, Position, SinkName
from penstock.errors import LedgerMismatch, Retryable
from penstock.protocols import Signature
from penstock.sink.spool.place import ID_SUFFIX, Place, Spooled
from penstock.support.filesystem_errors import translate_os_errors

SIGN = FaultPoint("spool.sign", "The spool of a sink is signed with an entry of the ledger.")

_NAME = re.compile(r"ledger-g(\d+)-(\d+)-([0-9a-f]{16})(?:-([0-9a-f]{32}))?" + re.escape(ID_SUFFIX))


def signatures_in(place: Place) -> Sequence[Signature]:
    """Return the signatures in `place`. Raises Retryable, and what a store raises."""
    with _translate_errors(place):
        names = [spooled.name for spooled in place.spooled() if spooled.upload is None]
    return signatures_among(names, place)


def signatures_among(names: Iterable[str], place: Place) -> Sequence[Signature]:
    """Return the signatures among the files `names` of `place`."""
    return [_signature(place, found) for found in map(_NAME.fullmatch, names) if found is not None]


def is_of_another(signature: Signature, ledger_id: LedgerId | None) -> bool:
    """Return whether `signature` names a ledger other than `ledger_id`. One of an older Penstock names none."""
    return signature.ledger_id not in {None, ledger_id}


def require_own_place(place: Place, *, own: Set[str], sink: SinkName, ledger_id: LedgerId) -> None:
    """Raise LedgerMismatch if another ledger has signed `place` too; first remove `own`, this run's own signatures.

    If two ledgers sign one place for the first time at the same moment, each signs before it looks, so at most one goes on. Raise
    Retryable if `ledger_id` has not signed: another ledger would take the place for free, and sweep it.
    """
    found = signatures_in(place)
    foreign = next((one for one in found if is_of_another(one, ledger_id)), None)
    if foreign is not None:
        with _translate_errors(place):
            for name in own:
                place.remove(Spooled(name=name))
        raise LedgerMismatch(
            f"Sink {sink!r} would stage into {place.where}, which ledger {foreign.ledger_id} signed, but this is ledger "
            f"{ledger_id}.",
            remedy="One would sweep what the other stages: give each a `spool:` of its own. If that ledger is gone for good, "
            f"remove {place.where}/{foreign.name} and start again.",
        )
    if all(one.ledger_id != ledger_id for one in found):
        raise Retryable(
            f"Sink {sink!r} would stage into {place.where}, which is not signed: ledger {ledger_id} could not write its name "
            "there when it was opened, or somebody removed it.",
            remedy="Give the driver room and write access there, and start again: a start signs it.",
        )


def sign(place: Place, entry: Entry, *, instead_of: Set[str]) -> Set[str]:
    """Sign `place`, then remove the names `instead_of`. Return the names that count now. Raises as `signatures_in`."""
    whose = "" if entry.summary.ledger_id is None else f"-{entry.summary.ledger_id}"
    name = f"ledger-g{entry.generation}-{entry.position}-{entry.nonce}{whose}{ID_SUFFIX}"
    with _translate_errors(place):
        with SIGN.around(error=OSError, lost=OSError):
            place.identify(name)
        for former in instead_of - {name}:
            place.remove(Spooled(name=former))
    return frozenset({name})


def _signature(place: Place, found: "re.Match[str]") -> Signature:
    generation, position, nonce, ledger_id = found.groups()
    return Signature(
        place=place.where,
        name=found[0],
        generation=Generation(int(generation)),
        position=Position(int(position)),
        nonce=Nonce(nonce),
        ledger_id=None if ledger_id is None else LedgerId(ledger_id),
    )


def _translate_errors(place: Place) -> AbstractContextManager[None]:
    what = f"Whose the spool {place.where} is cannot be read or written"
    return translate_os_errors(Retryable, what, then=", then try again.")
