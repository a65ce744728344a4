"""Predicts what Spark does with a checkpoint at its next start, as a pure function of the entries in its two logs."""

from dataclasses import dataclass
from enum import Enum

from penstock.core.model import BatchId


class Next(str, Enum):
    """What the next start does."""

    FRESH = "fresh"
    """Nothing is planned yet: batch 0 runs, with whatever input is there."""
    NEW = "new"
    """The newest planned batch is committed: a new batch follows it."""
    REPLAY = "replay"
    """The newest planned batch is not committed: it runs again, with the same number and the same input."""
    SKIP = "skip"
    """Like REPLAY, but earlier batches were not committed either, and Spark silently skips them."""
    REPEAT = "repeat"
    """The commit log is ahead of the offset log: Spark delivers a delivered batch once more, then fails."""
    FAIL = "fail"
    """Spark does not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStart:
    """What the next start runs first: `batch_id`, None if Spark does not start. The batches in `skipped` never run again."""

    next: Next
    batch_id: BatchId | None
    skipped: tuple[BatchId, ...] = ()

    @property
    def is_replay(self) -> bool:
        """Whether the sink can have received the first batch before, wholly or in part."""
        return self.next in {Next.REPLAY, Next.SKIP, Next.REPEAT}


def next_start(*, planned: frozenset[BatchId], committed: frozenset[BatchId], starts: bool = True) -> NextStart:
    """Predict the next start from the ids in the two logs; `starts` is False if something else keeps Spark from starting."""
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
