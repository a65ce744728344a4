"""Where the pieces of one sink lie, and the proof that driver and executors mean the same place.

The driver puts an empty file `<nonce>.id` there and tells its name to the tasks. A task that does not see it writes somewhere
else: what it wrote would be decided and could never be published, so it fails instead.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol
from urllib.parse import quote

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, SinkName, new_nonce
from penstock.errors import Failed, StageFailed
from penstock.support.filesystem_errors import problem_of

CLAIM = FaultPoint("spool.claim", "The driver creates the spool of a sink and its identity.")

ID_SUFFIX = ".id"
_IDENTITY = re.compile(r"[0-9a-f]{16}" + re.escape(ID_SUFFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """What lies in a spool: a file, or what a task left of one, then with the place's own name for that in `upload`."""

    name: str
    size_bytes: int | None = None
    upload: str | None = None


class PieceFile(Protocol):
    """A piece while a task writes it; used by one thread. Raises OSError, or what a store raises."""

    def write(self, data: bytes, /) -> object:
        """Append bytes."""
        ...

    def flush(self) -> None:
        """Push what was written towards the place, as far as that makes sense there."""
        ...

    def finish(self) -> None:
        """Make it durable under its name."""
        ...

    def drop(self) -> None:
        """Stop writing; what is there is left to the sweep."""
        ...


class Place(Protocol):
    """The area of one sink of one pipeline. Picklable, for the tasks. Raises OSError, or what a store raises."""

    @property
    def where(self) -> str:
        """For people: no secrets in it."""
        ...

    @property
    def sharing(self) -> str:
        """What to do where driver and tasks do not mean the same place."""
        ...

    def identities(self) -> Sequence[str]:
        """The names of files like an identity that are there; creates the place durably if it is missing."""
        ...

    def identify(self, name: str) -> None:
        """Create an empty file `name`, durably; one that is there becomes a new one."""
        ...

    def holds(self, name: str) -> bool:
        """Whether there is a file `name`."""
        ...

    def create(self, name: str) -> PieceFile:
        """Begin a file; FileExistsError at its end at the latest if there is one."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether each look takes a request, so that a file is to be read just once."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A finished file, seekable. Raises FileNotFoundError."""
        ...

    def spooled(self) -> Iterator[Spooled]:
        """All that lies there; nothing if there is no such place."""
        ...

    def remove(self, spooled: Spooled) -> None:
        """Remove it; fine if it is gone."""
        ...

    def requests_sent(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A place as its driver claimed it; picklable, for the tasks."""

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
    """Create the place durably if it is missing and give its identity, new in a store, which may delete what is old.

    Raises Failed, or what a store raises.
    """
    try:
        with CLAIM.around(error=OSError, lost=OSError):
            there = [name for name in place.identities() if _IDENTITY.fullmatch(name)]
            identity = min(there, default=new_nonce() + ID_SUFFIX)
            if place.is_remote or not there:
                place.identify(identity)
    except OSError as cause:
        problem = problem_of(cause)
        raise Failed(
            f"The spool directory {place.where} cannot be created or read: {problem.reason}.",
            remedy=f"{problem.advice}, for the driver and the executors, or change `spool:`; then start again.",
        ) from cause
    return Claimed(place=place, identity=identity)


def segments(pipeline: PipelineName, sink: SinkName) -> tuple[str, str]:
    """The names of the folders below the root, with characters escaped that could leave it."""
    return _segment(pipeline), _segment(sink)


def _segment(name: str) -> str:
    return quote(name, safe=" ").replace(".", "%2E") if name.startswith(".") else quote(name, safe=" ")
