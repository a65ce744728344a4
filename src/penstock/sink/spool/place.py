"""The place where the pieces of one sink lie, with empty files that prove which place it is and which ledger owns it.

The driver creates a file `<nonce>.id` in the place and passes its name to the tasks. A task that does not find that file writes
somewhere else: its pieces would be decided and could never be published. So it fails instead.

A signature, `ledger-g<generation>-<position>-<nonce>-<ledger_id>.id`, names the ledger that swept the place last, and an entry of
that ledger. Each ledger counts its own generations and batches, and so decides only for itself what is dead. An older Penstock
wrote no `ledger_id`. A place without a signature is free for any ledger; so are places that were made before there were
signatures.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol
from urllib.parse import quote

from penstock.core.faults import FaultPoint
from penstock.core.model import Entry, Generation, LedgerId, Nonce, Position, SinkName, new_nonce
from penstock.errors import Failed, LedgerMismatch, Retryable, StageFailed
from penstock.protocols import Signature
from penstock.support.filesystem_errors import translate_os_errors

CLAIM = FaultPoint("spool.claim", "The driver creates the spool of a sink and its identity.")

ID_SUFFIX = ".id"
_IDENTITY = re.compile(r"[0-9a-f]{16}" + re.escape(ID_SUFFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """A file in a spool, or an upload that a task did not complete; `upload` is then the place's own name for it."""

    name: str
    size_bytes: int | None = None
    upload: str | None = None


class PieceFile(Protocol):
    """A piece while a task writes it. Used by one thread. Raises OSError, or what a store raises."""

    def write(self, data: bytes, /) -> object:
        """Append bytes."""
        ...

    def flush(self) -> None:
        """Hand buffered bytes on to the system, if the place has any use for that; `finish` makes them durable."""
        ...

    def finish(self) -> None:
        """Make the piece durable under its name."""
        ...

    def abandon(self) -> None:
        """Stop writing. The sweep removes what is there."""
        ...


class Place(Protocol):
    """The place of one sink of one pipeline in a spool. Picklable, for the tasks. Raises OSError, or what a store raises."""

    @property
    def where(self) -> str:
        """Where the place is, for people: no secrets in it."""
        ...

    @property
    def sharing(self) -> str:
        """The remedy if driver and tasks do not use the same place."""
        ...

    def identities(self) -> Sequence[str]:
        """Return the names of all files that may be identities. Create the place durably if it is missing."""
        ...

    def identify(self, name: str) -> None:
        """Create an empty file `name` durably; a store writes an existing one anew."""
        ...

    def holds(self, name: str) -> bool:
        """Return whether there is a file `name`."""
        ...

    def create(self, name: str) -> PieceFile:
        """Begin the file `name`. In a directory, raises FileExistsError if it exists already."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether each look at a file is a request, so that a file should be read only once."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open a finished file for reading; it is seekable. Raises FileNotFoundError."""
        ...

    def spooled(self) -> Iterator[Spooled]:
        """Yield everything that lies in the place; nothing if the place does not exist."""
        ...

    def remove(self, spooled: Spooled) -> None:
        """Remove a file or an upload, unless it is gone already."""
        ...

    def requests_sent(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A place and the identity that the driver gave it. Picklable, for the tasks."""

    place: Place
    identity: str

    def require_shared(self, error: type[Failed] = StageFailed) -> None:
        """Raise `error` unless this process sees the place that the driver claimed."""
        if not self.place.holds(self.identity):
            raise error(
                f"The spool {self.place.where} on this machine is not the one the driver uses: {self.identity} is missing in it.",
                remedy=self.place.sharing,
            )


def claim(place: Place) -> Claimed:
    """Create the place durably if it is missing, and return it with its identity. Raises Failed, or what a store raises.

    In a store the identity is written again, since the store may delete old objects.
    """
    unusable = translate_os_errors(
        Failed,
        f"The spool directory {place.where} cannot be created or read",
        then=", for the driver and the executors, or change `spool:`; then start again.",
    )
    with unusable, CLAIM.around(error=OSError, lost=OSError):
        there = [name for name in place.identities() if _IDENTITY.fullmatch(name)]
        identity = min(there, default=new_nonce() + ID_SUFFIX)
        if place.is_remote or not there:
            place.identify(identity)
    return Claimed(place=place, identity=identity)


def folder_name(name: str) -> str:
    """Return the folder for pipeline or sink `name`, with characters escaped that could lead out of the root."""
    return quote(name, safe=" ").replace(".", "%2E") if name.startswith(".") else quote(name, safe=" ")


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
            f"Sink {sink!r} would stage into {place.where}, which ledger {ledger_id} has not signed: the start could not write "
            "the signature, or it was removed since.",
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
    what = f"The signature of the spool {place.where} cannot be read or written"
    return translate_os_errors(Retryable, what, then=", then try again.")
