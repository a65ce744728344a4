"""Recognises a batch as the next one or as a replay, by the ledger's summary and decisions alone.

A batch is known by its query id and its offsets. The number alone means nothing: a new checkpoint counts from 0 again. Whatever
is neither is refused; nothing is resolved silently.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from penstock.core.model import Batch, BatchId, Decision, OffsetRange, SourceName, Summary
from penstock.errors import BatchForgotten, BatchGap, CheckpointReplaced, OffsetsConflict


def recognise(batch: Batch, *, summary: Summary, decision_of: Callable[[BatchId], Decision | None]) -> Decision | None:
    """Return the decision that `batch` repeats, None if it is the next batch. `decision_of` finds a retained decision by number.

    Raises CheckpointReplaced, OffsetsConflict, BatchGap or BatchForgotten, each with both sides named.
    """
    expected = summary.next_batch_id
    if summary.query_id is None or expected is None:
        _require_first(batch, is_adopted=summary.adopted_at is not None)
        return None
    if batch.query_id != summary.query_id:
        raise CheckpointReplaced(
            f"The ledger continues query {summary.query_id} with batch {expected}, but Spark runs batch {batch.batch_id} of "
            f"query {batch.query_id}: the checkpoint was deleted or replaced.",
            remedy="Put the checkpoint of that query back, or read what `penstock adopt` says about accepting the new one.",
        )
    if batch.batch_id > expected:
        raise BatchGap(
            f"Spark runs batch {batch.batch_id}, but the next batch of the ledger is {expected}.",
            remedy="Batches in between were never delivered: put the matching checkpoint back, or accept with `penstock adopt`.",
        )
    if batch.batch_id == expected:
        _require_adjoining(batch, before=decision_of(BatchId(expected - 1)))
        return None
    return _the_same(batch, decision_of(batch.batch_id))


def _require_first(batch: Batch, *, is_adopted: bool) -> None:
    """Raise BatchGap unless the batch is the first one of a new checkpoint. `is_adopted`: one was adopted, after others."""
    if batch.batch_id == 0:
        return
    if is_adopted:
        raise BatchGap(
            f"A new checkpoint was adopted, but Spark runs batch {batch.batch_id} of query {batch.query_id}, expected batch 0.",
            remedy="Put the new checkpoint in its place, or accept this one with `penstock adopt`.",
        )
    raise BatchGap(
        f"The ledger is empty, but Spark's checkpoint goes on with batch {batch.batch_id}: the ledger does not show whether "
        "the batches before were delivered.",
        remedy="Start with a new checkpoint; or read what `penstock adopt FILE` says, if they are delivered.",
    )


def _require_adjoining(batch: Batch, *, before: Decision | None) -> None:
    if before is None:  # just adopted: nothing of this checkpoint was decided yet
        return
    ended = {offsets.source: offsets.end for offsets in with_names_of(before.batch, batch).offsets}
    starts = {offsets.source: offsets.start for offsets in batch.offsets}
    # I1, I2: what is new begins at its beginning; only sources with names can come and go under one checkpoint
    if any(ended[source] != starts[source] if source in ended else starts[source] is not None for source in starts):
        last = before.batch.batch_id
        raise OffsetsConflict(
            f"Batch {batch.batch_id} starts at {_show(starts)}, but batch {last} was decided up to {_show(ended)}.",
            remedy="The checkpoint or the sources were changed: put the right ones back, or accept with `penstock adopt`.",
        )


def _the_same(batch: Batch, decided: Decision | None) -> Decision:
    if decided is None:
        raise BatchForgotten(
            f"Spark runs batch {batch.batch_id} again, which is older than every decision that the ledger retains.",
            remedy="This checkpoint is too old to continue from: put the newest one back.",
        )
    batch = with_names_of(batch, decided.batch)
    if _by_source(decided.batch) != _by_source(batch):
        raise OffsetsConflict(
            f"Spark runs batch {batch.batch_id} with {described_offsets(batch.offsets)}, "
            f"but that batch was decided with {described_offsets(decided.batch.offsets)}.",
            remedy="The checkpoint is an older copy or another one: put the newest one back, or accept with `penstock adopt`.",
        )
    return decided


def are_places(names: Sequence[SourceName]) -> bool:
    """Return whether sources are called by their places in the plan, as those of a query in code without names are."""
    return bool(names) and list(names) == [str(place) for place in range(len(names))]


def with_names_of(batch: Batch, other: Batch) -> Batch:
    """Return `batch` with the names that the sources have in `other`, where one of both calls them by their places alone.

    A `Delivery` is given names of its sources later, or a pipeline file takes its place: the sources are the same ones. Both are
    in the order of the plan then.
    """
    mine, names = ([each.source for each in one.offsets] for one in (batch, other))
    if len(mine) != len(names) or set(mine) & set(names) or not (are_places(mine) or are_places(names)):
        return batch
    renamed = (replace(each, source=name) for each, name in zip(batch.offsets, names, strict=True))
    return replace(batch, offsets=tuple(renamed))


def _by_source(batch: Batch) -> Batch:
    """Return `batch` with its sources in the order of their names: those with names can be reordered before it comes again."""
    return replace(batch, offsets=tuple(sorted(batch.offsets, key=lambda each: each.source)))


def _show(offsets: Mapping[SourceName, str | None]) -> str:
    return ", ".join(f"{source}={offset}" for source, offset in offsets.items()) or "no source"


def described_offsets(offsets: tuple[OffsetRange, ...]) -> str:
    """Return the offsets with what tells batches apart that have the same ones: of files, their fingerprint."""
    return ", ".join(
        f"{item.source} {item.start}..{item.end}" + (f" (content {item.content[:12]})" if item.content else "")
        for item in offsets
    )
