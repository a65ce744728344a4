"""The place where the pieces of one sink lie, and the proof that driver and executors use the same one.

The driver creates an empty file `<nonce>.id` in the place and passes its name to the tasks. A task that does not find that file
writes somewhere else: its pieces would be decided and could never be published. So it fails instead.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol
from urllib.parse import quote

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, SinkName, new_nonce
from penstock.errors import Failed, StageFailed
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
        """Push what was written towards the place, as far as that makes sense there."""
        ...

    def finish(self) -> None:
        """Make the piece durable under its name."""
        ...

    def drop(self) -> None:
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
        """Whether each look takes a request, so that a file should be read only once."""
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

    def require_shared(self) -> None:
        """Raise StageFailed unless this process sees the place that the driver claimed."""
        if not self.place.holds(self.identity):
            raise StageFailed(
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


def segments(pipeline: PipelineName, sink: SinkName) -> tuple[str, str]:
    """Return the names of the folders below the root, with characters escaped that could lead out of it."""
    return _segment(pipeline), _segment(sink)


def _segment(name: str) -> str:
    return quote(name, safe=" ").replace(".", "%2E") if name.startswith(".") else quote(name, safe=" ")
