"""Protocols of an account: what the Parquet sink needs of it, whatever store it is on.

An **account** holds a table's files below its root. An **area** is the part of an account that one sink of one pipeline uses: its
published files, its staging and its marker. Directories are one implementation, object stores are others.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import BinaryIO, Protocol

from penstock.core.adopted_files import AdoptedFiles
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


class PieceState(str, Enum):
    """Where a decided piece is now: staged, visible to readers, or neither."""

    STAGED = "staged"
    SHOWN = "shown"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file that a reader of the account would find; `name` is relative to the root, with slashes.

    `field_ids`: the table's numbers of columns, by path, where readers find columns by number.
    """

    name: str
    size_bytes: int
    field_ids: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A staged file: what `publish` needs to find it (`Staged.ref`), or its bytes if they travel in the decision."""

    ref: Mapping[str, Json] = field(default_factory=dict)
    inline: bytes | None = None


class Allowance:
    """Bytes left for inline files of one attempt. Shared by all threads that finish files of it."""

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes
        self._lock = Lock()

    def take(self, size_bytes: int) -> bool:
        with self._lock:
            if size_bytes > self._left_bytes:
                return False
            self._left_bytes -= size_bytes
            return True


class Upload(Protocol):
    """One file on its way into an account, invisible until published. Used by one thread at a time."""

    size_bytes: int
    closed: bool = False
    """Read by pyarrow. Always False: a Parquet writer dropped after an error still writes, and that is thrown away."""

    def write(self, data: bytes) -> int:
        """Append bytes; called by pyarrow. Raises StageFailed, Retryable."""
        ...

    def flush(self) -> None:
        """Called by pyarrow; does nothing. Only `finish` makes bytes durable."""
        return

    def finish(self) -> Finished:
        """Make the bytes durable, or return them to travel in the decision. Raises StageFailed, Retryable."""
        ...

    def abandon(self) -> None:
        """Release what this process has open. The sweep removes what is in the store."""
        ...


class UploadArea(Protocol):
    """The task side of an area. Picklable: settings only."""

    def open(self, name: str, *, allowance: Allowance) -> Upload:
        """Begin the file that will be published as `name`, a name that no other file ever has. Raises StageFailed.

        `allowance`: how many more bytes the attempt may pass inline instead of staging them.
        """
        ...

    def seal(self) -> None:
        """Make the names of finished files durable. Called once per attempt, before these are reported. Raises StageFailed."""
        return

    def requests_sent(self) -> Mapping[str, int]:
        return {}


class Area(Protocol):
    """The driver side of an area."""

    @property
    def is_remote(self) -> bool:
        """Whether each look at a file is a request, which takes time and money."""
        ...

    def prepare(self) -> UploadArea:
        """Create what is missing, prove what publishing needs, and return the task side. Raises Refused, Failed, Retryable."""
        ...

    @property
    def claim_place(self) -> str:
        """The path or URL of the file that names the account's owner, for people who have to remove it."""
        ...

    def claimed_by(self) -> AccountOwner | None:
        """Return the owner, None if there is none. Raises PublishFailed, Failed, Retryable, LedgerMismatch, FormatTooNew."""
        ...

    def claim(self, owner: AccountOwner) -> None:
        """Note `owner` durably unless the account has an owner. Of concurrent claims one is noted. Raises as `claimed_by`."""
        ...

    def marker(self) -> Marker | None:
        """Return the high-water mark, None if nothing was ever published. Raises as `claimed_by`."""
        ...

    def marker_of(self, position: Position) -> Marker | None:
        """Return the marker of the publication at `position`, None if it is not retained or never was. Raises as `claimed_by`."""
        ...

    def manifests(self) -> Iterator[Marker]:
        """Yield every retained marker in any order, at least those of the newest 1,000 publications. Raises as `claimed_by`."""
        ...

    def state(self, piece: Staged) -> PieceState:
        """Return where `piece` is. Raises ContentConflict if something else has its name, StagedDataLost, Failed, Retryable."""
        ...

    def show(self, pieces: Sequence[Staged]) -> Sequence[Staged]:
        """Make pieces visible and durable, whatever an earlier or concurrent call has done. Return those that are gone.

        Raises ContentConflict, StagedDataLost, PublishFailed, OutcomeUnknown, Failed, Retryable.
        """
        ...

    def advance(self, marker: Marker) -> None:
        """Raise the high-water mark, durably. A lower mark than the present one changes nothing. Raises as `claimed_by`."""
        ...

    def remove(self, pieces: Sequence[Staged]) -> None:
        """Remove published files durably; those that are gone already are passed over. Raises ContentConflict, and as `show`."""
        ...

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Remove staging that is dead by `cut`, or only find it if `dry_run`, and return its names.

        Returns nothing if another ledger owns the account.
        """
        ...

    def task_check(self) -> AbstractContextManager[TaskCheck | None]:
        """Yield a check that tasks may run until the context ends, None if the driver's own check already fails."""
        ...

    def waiting(self) -> Iterator[Waiting]:
        """Yield all staging that can be listed, including what `sweep` would collect."""
        ...

    def lifecycle(self) -> Sequence[Finding]:
        """Return findings about rules by which the store itself deletes what the sink needs. Change nothing."""
        return ()

    def missing_directory(self) -> str | None:
        """Return the table's directory if it is not there; None if it is, or the store has none. Raises as `claimed_by`."""
        return None

    def files(self) -> Iterator[StoredFile]:
        """Yield every file below the root that readers would read, in any order."""
        ...

    def spark_log(self) -> str | None:
        """Return where the log of Spark's file sink is if one filled the account and was not taken over, else None.

        Raises as `claimed_by`.
        """
        return None

    def adopted(self) -> AdoptedFiles | None:
        """Return the files that the account began with, None unless it was taken over. Raises as `claimed_by`."""
        return None

    def open(self, name: str) -> BinaryIO:
        """Open a published file for reading."""
        ...

    def check(self) -> Sequence[Finding]:
        """Return the findings of `penstock check`. Leave nothing behind."""
        ...


class Account(Protocol):
    """One place that holds a table."""

    @property
    def url(self) -> str:
        """The URL, for people and messages: no secrets in it."""
        ...

    @property
    def root_for_readers(self) -> str:
        """The root to which readers append a slash and a file's name: the absolute path of a directory, or the store's URL."""
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
        """Return the area of this sink. Nothing is read or created yet."""
        ...

    def requests_sent(self) -> Mapping[str, int]:
        return {}

    def estimated_requests(self) -> Mapping[str, RequestEstimate]:
        return {}

    def enclosing(self) -> "Iterator[tuple[str, AccountOwner]]":
        """Yield URL and owner of each account that this one lies within, except those whose owner cannot be read."""
        ...

    def overlaps(self, other: "Account") -> str | None:
        """Return why both cannot be accounts of one sink, None if they can."""
        ...
