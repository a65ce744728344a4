"""The error tree, grouped by what the operator does next.

PenstockError
├── Usage            exit 2   correct the command or the pipeline file
├── Refused          exit 3   the guarantee or an identity check says no; an explicit act of the operator resolves it
│   ├── GuaranteeTooWeak, CheckpointReplaced, CheckpointMissing, OffsetsConflict, BatchGap, BatchForgotten
│   ├── CheckpointDamaged, SourcesChanged, PipelineChanged, InputLost, JournalDamaged
│   └── LedgerMismatch, StoreIgnoresConditions, FormatTooNew
├── Fenced           exit 4   a newer run owns the pipeline; look there
├── Retryable        exit 75  nothing is known to be wrong with the data; try again
│   ├── OutcomeUnknown        it may or may not have happened: read it back, never guess
│   └── NotPublishedYet       a decided batch waits for a sink; the next start publishes it
└── Failed           exit 1   something must be mended first; what was decided stays decided
    ├── StageFailed, PublishFailed, StagedDataLost, ContentConflict, BatchFailed, InputChanged
    └── DependencyMissing

`PositionTaken` (from a ledger to the coordinator) and `Conflict` (from a database to its caller) are never shown to people.
"""

from collections.abc import Mapping
from types import MappingProxyType

from typing_extensions import Self


class PenstockError(Exception):
    """An error for people: one sentence of what happened (expected, found) and one of what to do (`remedy`).

    `by_sink`: where publishing failed, the fields (`as_fields`) of the error of each failed sink. `lacks`: `room` where a place
    is full, `access` where a login or token is refused, else empty; by it an alert names the cause.
    """

    exit_code = 1
    lacks = ""
    by_sink: "Mapping[str, Mapping[str, object]]" = MappingProxyType({})

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}"

    def lacking(self, lacks: str) -> Self:
        """Set `lacks` and return the error."""
        self.lacks = lacks
        return self

    def as_fields(self) -> "dict[str, object]":
        """Return the fields for `--json`, without `by_sink`."""
        return {"kind": type(self).__name__, "message": self.message, "remedy": self.remedy, "exit_code": self.exit_code}

    def __reduce__(self) -> "tuple[object, ...]":
        return (_rebuild, (type(self), self.message, self.remedy, self.lacks))


def _rebuild(kind: type[PenstockError], message: str, remedy: str, lacks: str = "") -> PenstockError:
    return kind(message, remedy=remedy).lacking(lacks)


class Usage(PenstockError):
    """The command line or the pipeline file is wrong."""

    exit_code = 2


class Refused(PenstockError):
    """Continuing could lose or repeat data, so nothing was done."""

    exit_code = 3


class GuaranteeTooWeak(Refused):
    """A source, operator, trigger or sink gives less than the guarantee that the pipeline demands."""


class CheckpointReplaced(Refused):
    """The checkpoint belongs to another query than the one whose batches the ledger holds."""


class CheckpointMissing(Refused):
    """The ledger holds batches, but there is no checkpoint that continues them."""


class CheckpointDamaged(Refused):
    """A file that the checkpoint must have is missing, cut off or unreadable."""


class SourcesChanged(Refused):
    """The checkpoint holds another number of sources, or other names or another order, than the pipeline."""


class PipelineChanged(Refused):
    """A change of the pipeline since its last run would lose rows, deliver rows twice, or be refused by Spark."""


class InputLost(Refused):
    """Kafka, a journal or a pipeline's table lacks records that were not delivered, or has other records at their offsets."""


class JournalDamaged(Refused):
    """A journal lacks events that it had acknowledged, or has a frame that is damaged."""


class OffsetsConflict(Refused):
    """A batch number comes again with other offsets than those decided for it."""


class BatchGap(Refused):
    """A batch does not follow the last decided one."""


class BatchForgotten(Refused):
    """A batch comes again that is older than what the ledger retains, so it cannot be compared."""


class LedgerMismatch(Refused):
    """The ledger belongs to another pipeline or is damaged, or a spool or a sink's marker belongs to another ledger."""

    @classmethod
    def of_another(cls, found: str, *, own: str, location: str) -> "LedgerMismatch":
        """Return the error for a ledger of the pipeline `found`, opened by the pipeline `own`."""
        return cls(
            f"The ledger at {location} belongs to pipeline {found!r}, not to {own!r}.",
            remedy=f"If the name was changed, write `pipeline: {found}` again; else give {own!r} a home or a ledger of its own.",
        )


class StoreIgnoresConditions(Refused):
    """The store let two writers create the same object, so nothing on it can fence anything."""


class FormatTooNew(Refused):
    """A durable value was written by a newer Penstock than this one."""


class Fenced(PenstockError):
    """A newer generation opened the pipeline, so this one must not decide anything any more."""

    exit_code = 4


class Retryable(PenstockError):
    """The operation did not happen and may be tried again; only for its subclasses it may have happened."""

    exit_code = 75


class OutcomeUnknown(Retryable):
    """The answer was lost, so the operation may have happened.

    The caller finds out by reading: the nonce at a position of the ledger, the marker of a table or lane, the target of a file.
    """


class NotPublishedYet(Retryable):
    """A decided batch waits for a sink that did not answer in time; it stays decided and the next start publishes it.

    Not tried again within the run: whoever raises it has tried for long enough.
    """


class Failed(PenstockError):
    """The operation failed, and will fail again until something is mended."""


class StageFailed(Failed):
    """The staging pass failed: rows that cannot be routed or written, a full disk, a corrupt source file."""


class PublishFailed(Failed):
    """A decided batch cannot be published before something is mended; it stays decided and the next start publishes it."""


class StagedDataLost(Failed):
    """The ledger decided a piece that is neither staged nor published any more."""


class ContentConflict(Failed):
    """The target holds something else under the name, or another number of rows, than was decided."""


class BatchFailed(Failed):
    """An exception that is none of Penstock's ended a batch; `Delivery.failure` holds it."""


class InputChanged(Failed):
    """An input file is not what it was when Spark planned the batch, so the batch was not decided."""


class DependencyMissing(Failed):
    """A program or package that the pipeline needs is not installed."""


class PositionTaken(Exception):
    """The ledger already holds an entry at that position; the caller reads it."""


class Conflict(Exception):
    """The database rolled the transaction back because of a concurrent one: the caller runs it again at once."""
