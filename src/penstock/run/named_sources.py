"""What Spark makes of a checkpoint whose sources have names, where sources were reordered, added or taken out since.

As Spark 4.3 does it: a batch that is planned and not committed runs again without the rows of a source that is gone. A name that
comes back begins anew, at the beginning of what it reads, unless it was away for one batch only. A name that is new begins where
the options of its source say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.checkpoint.entries import OffsetsEntry, Unreadable
from penstock.checkpoint.source_log import entries_in
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.checkpoint.state import operator_ids, operator_names
from penstock.commit.publication import standing
from penstock.core.model import Adopted, Batch, BatchId, Decided, SourceName
from penstock.errors import SourcesChanged
from penstock.protocols import Ledger

_JOIN = "symmetricHashJoin"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProblem:
    """Why a start would lose or repeat rows, or mix up state. `source` is None where it is the order of all of them."""

    source: SourceName | None
    message: str
    remedy: str

    def as_error(self) -> SourcesChanged:
        return SourcesChanged(self.message, remedy=self.remedy)


def require_same_keys(entry: OffsetsEntry, checkpoint: SparkCheckpoint, *, named: bool) -> None:
    """Raise SourcesChanged if the checkpoint has its sources by place and the pipeline has named ones, or the other way round.

    Spark refuses most of these, but reads all sources from their beginning where an entry of version 2 has them by place.
    """
    if named and not entry.named:
        raise SourcesChanged(
            f"The pipeline has `named_sources: true`, but the checkpoint {checkpoint.location} has its sources by their place.",
            remedy="Let it have them by name: `penstock checkpoint migrate FILE --yes`; or take `named_sources` out.",
        )
    if entry.named and not named:
        raise SourcesChanged(
            f"The checkpoint {checkpoint.location} has its sources by name, but the pipeline is without `named_sources: true`.",
            remedy="Write `named_sources: true` at the top of the pipeline file.",
        )


def has_own_name(entry: OffsetsEntry, sources: Sequence[SourceName]) -> bool:
    """Return whether the decided `sources` give each place in `entry` a name of its own."""
    return len(entry.offsets) == len(sources) and not any("#" in name for name in sources)


def problems(
    ledger: Ledger,
    checkpoint: SparkCheckpoint,
    entry: OffsetsEntry,
    *,
    planned: BatchId,
    decided: Batch | None,
    sources: Sequence[SourceName],
    in_code: bool,
) -> Iterator[SourceProblem]:
    """Yield what is wrong with `sources`, in the order of the plan, where `entry` is that of the batch planned last.

    `in_code`: no pipeline file tells what a source reads, so that a new one beside one that is gone may be the same, renamed.
    """
    gone = [SourceName(key) for key in entry.offsets if key not in sources]
    new = [name for name in sources if name not in entry.offsets]
    committed = checkpoint.latest_commit_id()
    if gone and (committed is None or committed < planned):
        yield _owed(gone[0], planned)
    if gone and new and in_code:
        yield renamed(gone[0], new[0])
    for name in new:
        if _was_read(ledger, checkpoint, name):
            yield _comes_back(name)
    before = [] if decided is None else [each.source for each in decided.offsets if each.source in sources]
    if before != [name for name in sources if name in before] and _is_told_by_order(checkpoint):
        yield _reordered(before, sources)


def renamed(old: str, new: str) -> SourceProblem:
    """Return the problem of a source that is gone, while another one is new that may be the same."""
    return SourceProblem(
        source=SourceName(new),
        message=f"Source {old} is gone and {new} is new: if it is the same under another name, Spark reads all of it again.",
        remedy=f"Name it {old} again. If {new} is another input, add it first, run a batch, and then take {old} out.",
    )


def _owed(name: SourceName, planned: BatchId) -> SourceProblem:
    return SourceProblem(
        source=name,
        message=f"Batch {planned} is planned with source {name}, which is gone: Spark would run the batch without its rows.",
        remedy=f"Put {name} back, let the batch end (`penstock run FILE --available-now`), and take it out then.",
    )


def _comes_back(name: SourceName) -> SourceProblem:
    return SourceProblem(
        source=name,
        message=f"Earlier batches read a source {name}, and Spark has forgotten up to where: it would read all of it again.",
        remedy="Give the source a name that it never had, and have it leave out what was delivered: by `startingOffsets`, or "
        "with delivered files moved away.",
    )


def _reordered(before: Sequence[SourceName], sources: Sequence[SourceName]) -> SourceProblem:
    return SourceProblem(
        source=None,
        message=f"The query reads its sources in the order {', '.join(sources)}, but has state in the order {', '.join(before)}: "
        "Spark knows state by its place in the query.",
        remedy="Put the sources back in that order. Only a query without a join and with one operator that keeps state may "
        "reorder them.",
    )


def _was_read(ledger: Ledger, checkpoint: SparkCheckpoint, name: SourceName) -> bool:
    """Return whether batches of this query read a source that the newest one does not have, as far back as the ledger goes."""
    logged = entries_in(checkpoint.files.names(f"sources/{name}"))
    if any(log_id > 1 for log_id in logged.values()):  # up to there a start can have come that planned no batch
        return True
    for each in standing(ledger.newest_first()):
        if isinstance(each.body, Adopted) and not each.body.gaps:
            return False
        if isinstance(each.body, Decided) and any(name == read.source for read in each.body.decision.batch.offsets):
            return True
    return False


def _is_told_by_order(checkpoint: SparkCheckpoint) -> bool:
    """Return whether the order of sources tells one part of the state from another: sides of a join, several operators."""
    operators = operator_ids(checkpoint.files)
    try:
        names = operator_names(checkpoint.files)
    except Unreadable:
        names = None
    return len(operators) > 1 or (len(operators) == 1 and (names is None or _JOIN in names))
