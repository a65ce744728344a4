"""What Spark will do with a checkpoint at its next start: a pure function of what the two logs hold."""

from dataclasses import dataclass
from enum import Enum

from penstock.core.model import BatchId


class Next(str, Enum):
    """What the next start does."""

    FRESH = "fresh"
    """Nothing was planned yet: batch 0, with whatever is there."""
    NEW = "new"
    """The newest planned batch is committed: a new batch follows it."""
    REPLAY = "replay"
    """The newest planned batch is not committed: it runs again, with the same number and the same input."""
    SKIP = "skip"
    """As REPLAY, but batches before it were never committed either and are passed over in silence."""
    REPEAT = "repeat"
    """The commit log is ahead of the offset log: a delivered batch is delivered once more, then Spark fails."""
    FAIL = "fail"
    """Spark will not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStart:
    """The batch that the next start runs first; None when it will not start. `skipped` are batches that nobody runs again."""

    next: Next
    batch_id: BatchId | None
    skipped: tuple[BatchId, ...] = ()

    @property
    def is_replay(self) -> bool:
        """Whether the first batch was handed to the sink before, wholly or in part."""
        return self.next in {Next.REPLAY, Next.SKIP, Next.REPEAT}


def next_start(*, planned: frozenset[BatchId], committed: frozenset[BatchId], starts: bool = True) -> NextStart:
    """The outlook for the entries of the two logs; `starts` is False if something else is known to keep Spark from starting."""
    newest = max(planned, default=None)
    newest_commit = max(committed, default=BatchId(-1))
    if not starts or (newest is not None and newest > 0 and newest - 1 not in planned):
        return NextStart(next=Next.FAIL, batch_id=None)
    if newest is None:
        return NextStart(next=Next.FRESH if not committed else Next.REPEAT, batch_id=BatchId(0))
    if newest_commit == newest:
        return NextStart(next=Next.NEW, batch_id=BatchId(newest + 1))
    if newest_commit > newest:
        return NextStart(next=Next.REPEAT, batch_id=newest)
    skipped = tuple(BatchId(batch_id) for batch_id in range(newest_commit + 1, newest))
    return NextStart(next=Next.SKIP if skipped else Next.REPLAY, batch_id=newest, skipped=skipped)
