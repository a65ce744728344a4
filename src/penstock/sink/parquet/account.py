"""What the storage writer needs of an account, whatever store it is on.

An **account** holds a table's files below its root. An **area** is the part of an account that one sink of one pipeline uses: its
published files, what it has staged and its marker. Directories are one implementation; object stores are others.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import BinaryIO, Protocol

from penstock.core.high_water_mark import AccountOwner, Marker
from penstock.core.model import (
    AccountName,
    Finding,
    Json,
    PipelineName,
    Position,
    RequestEstimate,
    SinkName,
    Staged,
    SweepCut,
    Waiting,
)
from penstock.protocols import TaskCheck
from penstock.sink.parquet.inline_budget import Allowance


class PieceState(str, Enum):
    """Where a decided piece is now."""

    STAGED = "staged"
    SHOWN = "shown"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file that a reader of the account would find; `name` is relative to the root, with slashes."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A staged file: what `publish` needs to know of it (`Staged.ref`), or the file itself where it is small enough to travel."""

    ref: Mapping[str, Json] = field(default_factory=dict)
    inline: bytes | None = None


class Upload(Protocol):
    """One file on its way into an account, invisible until published. Used by one thread at a time."""

    size_bytes: int

    def write(self, data: bytes) -> int:
        """Append bytes; called by pyarrow. Raises StageFailed."""
        ...

    def flush(self) -> None:
        """Called by pyarrow; durability comes with `finish`."""
        ...

    @property
    def closed(self) -> bool:
        """Called by pyarrow."""
        ...

    def finish(self) -> Finished:
        """Make the bytes durable, or hand them over. Raises StageFailed."""
        ...

    def abandon(self) -> None:
        """Release what this process holds; what is in the store is left to the sweep."""
        ...


class UploadArea(Protocol):
    """The task side of an area. Picklable: settings only."""

    def open(self, name: str, *, allowance: Allowance) -> Upload:
        """Begin the file that will be published as `name`, a name that nothing else ever has. Raises StageFailed.

        `allowance` is what the attempt may still hand over instead of staging it.
        """
        ...

    def seal(self) -> None:
        """Called once after all uploads of an attempt are finished, before they are reported. Raises StageFailed."""
        ...

    def requests_sent(self) -> Mapping[str, int]: ...


class Area(Protocol):
    """The driver side of an area."""

    @property
    def is_remote(self) -> bool:
        """Whether each look is a request that takes time and money."""
        ...

    def prepare(self) -> UploadArea:
        """Create what is missing, prove what publishing needs. Raises Refused, Failed, Retryable."""
        ...

    @property
    def claim_place(self) -> str:
        """Where it is noted whose the account is, for people who remove it."""
        ...

    def claimed_by(self) -> AccountOwner | None:
        """Whose the account is, None if nobody has claimed it. Raises PublishFailed, Failed, Retryable, LedgerMismatch."""
        ...

    def claim(self, owner: AccountOwner) -> None:
        """Note `owner` durably unless the account has one: of several at the same moment one is noted. Raises as `claimed_by`."""
        ...

    def marker(self) -> Marker | None:
        """The high-water mark, None if nothing was ever published."""
        ...

    def marker_of(self, position: Position) -> Marker | None:
        """The mark of just that publication, None if it is not kept or never was."""
        ...

    def manifests(self) -> Iterator[Marker]:
        """Every mark that is kept, in any order: at least those of the newest 1,000 publications."""
        ...

    def state(self, piece: Staged) -> PieceState:
        """Where `piece` is. Raises ContentConflict if something else has its name."""
        ...

    def show(self, pieces: Sequence[Staged]) -> Sequence[Staged]:
        """Make pieces visible and durable, whatever a former or concurrent call has done; return those that are gone."""
        ...

    def advance(self, marker: Marker) -> None:
        """Raise the high-water mark, durably; a lower mark than the present one changes nothing."""
        ...

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Collect staging that is dead by `cut` and name it."""
        ...

    def task_check(self) -> AbstractContextManager[TaskCheck | None]:
        """A look that tasks may take until the context ends, None where the driver cannot either."""
        ...

    def waiting(self) -> Iterator[Waiting]:
        """All that is staged and can be listed; what `sweep` takes is among it."""
        ...

    def lifecycle(self) -> Sequence[Finding]:
        """What the store deletes by itself, as far as it would hurt; only looks."""
        ...

    def files(self) -> Iterator[StoredFile]:
        """Every file below the root that readers would read, in any order."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A published file, for reading."""
        ...

    def check(self) -> Sequence[Finding]:
        """What `penstock check` says of it; changes nothing for good."""
        ...


class Account(Protocol):
    """One place that holds a table."""

    @property
    def url(self) -> str:
        """For people and messages; no secrets in it."""
        ...

    @property
    def root_for_readers(self) -> str:
        """What comes, with a slash, before a file's name: an absolute path where it is a directory, else the store's URL."""
        ...

    @property
    def root_for_spark(self) -> str:
        """The root as Spark's connectors spell it."""
        ...

    @property
    def staging(self) -> str:
        """Where pieces wait until they are published, for people."""
        ...

    @property
    def publishing(self) -> str:
        """What makes one file appear, for people."""
        ...

    def area(self, *, pipeline: PipelineName, sink: SinkName, account: AccountName) -> Area:
        """The part that belongs to this sink. Nothing is touched yet."""
        ...

    def requests_sent(self) -> Mapping[str, int]: ...

    def estimated_requests(self) -> Mapping[str, RequestEstimate]: ...

    def enclosing(self) -> "Iterator[tuple[str, AccountOwner]]":
        """URL and owner of each account that this one lies within, as far as that can be seen from here."""
        ...

    def overlaps(self, other: "Account") -> str | None:
        """Why both cannot be accounts of one sink, None if they can."""
        ...
