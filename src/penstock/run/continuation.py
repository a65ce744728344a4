"""Whether a checkpoint continues what the ledger decided, and what adopting one that does not would mean."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.checkpoint.entries import MENDED, SAME_COMMAND
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.commit.identity import are_places, recognise
from penstock.commit.publication import continued_decision, decision_of
from penstock.commit.summary import after_adoption
from penstock.core.model import Adopted, Batch, BatchId, Position, QueryId, SourceName, Summary
from penstock.errors import (
    BatchForgotten,
    BatchGap,
    CheckpointDamaged,
    CheckpointMissing,
    CheckpointReplaced,
    OffsetsConflict,
    PenstockError,
    Refused,
    SourcesChanged,
    Usage,
)
from penstock.observe.status import CheckpointPosition
from penstock.protocols import Ledger
from penstock.run.application import delivered_by
from penstock.run.named_sources import problems, require_same_keys
from penstock.run.runtime import Runtime

MADE_AGAIN = "Without a copy, `penstock checkpoint rebuild` makes the checkpoint again from the ledger, or says why it cannot."


def position_of(checkpoint: SparkCheckpoint) -> CheckpointPosition | None:
    """Return where the checkpoint stands, None if there is none. Raises CheckpointDamaged."""
    if not checkpoint.exists():
        return None
    committed = checkpoint.latest_commit_id()  # first: beside a running driver what is read later may be newer
    planned = checkpoint.latest_offsets_id()
    if committed is not None and (planned is None or committed > planned):  # at every start Spark repeats one before, then fails
        raise CheckpointDamaged(
            f"The checkpoint {checkpoint.location} has commits/{committed}, but no offsets/{committed}: "
            "entries of the offset log were removed.",
            remedy="Restore them from a copy; `penstock history` shows what these batches read.",
        )
    return CheckpointPosition(query_id=checkpoint.query_id(), planned=planned, committed=committed)


def require_continuation(summary: Summary, checkpoint: SparkCheckpoint) -> None:
    """Raise CheckpointMissing, CheckpointReplaced or BatchGap if Spark's next batch cannot be one that the ledger expects.

    Raises CheckpointDamaged for a file without which Spark does not start: after a minute, it would say so itself.
    An older copy of the right checkpoint passes: each of its batches is recognised, or refused by its offsets.
    """
    expected = summary.next_batch_id
    try:
        position = position_of(checkpoint)
    except CheckpointDamaged as damaged:
        raise with_way_out(damaged, summary, checkpoint) from None
    if summary.query_id is None or expected is None:
        if position is not None and position.next_batch_id > 0:
            raise _not_new(summary, checkpoint, position)
        return
    if position is None:
        raise _missing(summary, checkpoint)
    if position.query_id is None:
        raise CheckpointMissing(
            f"The ledger continues query {summary.query_id} with batch {expected}, but the checkpoint {checkpoint.location} "
            "has lost its metadata file.",
            remedy="If it is the checkpoint of that query, `penstock checkpoint repair FILE --yes` writes the file again; it "
            "refuses another one. Else put the right checkpoint back.",
        )
    if position.query_id != summary.query_id:
        raise CheckpointReplaced(
            f"The ledger continues query {summary.query_id}, but the checkpoint {checkpoint.location} is of query "
            f"{position.query_id}.",
            remedy="Put the right checkpoint back; or read what `penstock adopt` says about accepting this one.",
        )
    if position.next_batch_id > expected:
        raise BatchGap(
            f"The checkpoint goes on with batch {position.next_batch_id}, but the ledger expects batch {expected}: "
            "it has not decided the batches in between.",
            remedy="Put the newest copy of the ledger back, or the checkpoint that matches this one; or read what "
            "`penstock adopt` says about going on without those batches.",
        )
    try:
        checkpoint.require_readable(position.planned)
    except CheckpointDamaged as damaged:
        raise with_way_out(damaged, summary, checkpoint) from None


def require_not_lost(ledger: Ledger, checkpoint: SparkCheckpoint) -> None:
    """Raise CheckpointMissing if there is no checkpoint where the ledger continues one."""
    tail = ledger.tail()
    if tail is not None and tail.summary.query_id is not None and tail.summary.next_batch_id and not checkpoint.exists():
        raise _missing(tail.summary, checkpoint)


def _missing(summary: Summary, checkpoint: SparkCheckpoint) -> CheckpointMissing:
    return CheckpointMissing(
        f"The ledger continues query {summary.query_id} with batch {summary.next_batch_id}, but the checkpoint "
        f"{checkpoint.location} does not exist.",
        remedy="If it is elsewhere, name that place as `checkpoint` of the pipeline. If it is lost, put it back from a copy; "
        "or make it again from the ledger: `penstock checkpoint rebuild`; or read what `penstock adopt` says of a new one.",
    )


def _not_new(summary: Summary, checkpoint: SparkCheckpoint, position: CheckpointPosition) -> BatchGap:
    """Return the refusal of a checkpoint that goes on, where the ledger expects a new one."""
    if summary.adopted_at is not None:
        return BatchGap(
            f"A new checkpoint was adopted, but the one in {checkpoint.location} goes on with batch {position.next_batch_id}, "
            "expected batch 0.",
            remedy="Move it away, and Spark makes a new one; or read what `penstock adopt` says about going on with this one.",
        )
    return BatchGap(
        f"The ledger is empty, but the checkpoint {checkpoint.location} goes on with batch {position.next_batch_id}.",
        remedy="Put the ledger back if it is lost, moved or not mounted. If another program delivered the batches before it, "
        "read what `penstock adopt FILE` says; for a query in Python, that file names the same pipeline, home, checkpoint and "
        "sinks. Else start with a new checkpoint.",
    )


def with_way_out(error: PenstockError, summary: Summary, checkpoint: SparkCheckpoint) -> PenstockError:
    """Return `error`; for a damaged checkpoint with a remedy that needs no copy of it.

    A machine that went down at the first start leaves files that are empty, and nobody has a copy yet.
    """
    if isinstance(error, CheckpointDamaged | CheckpointMissing) and summary.next_batch_id is None:
        error.remedy = begin_anew(checkpoint)
    elif isinstance(error, CheckpointDamaged) and MENDED not in error.remedy and not error.remedy.startswith(SAME_COMMAND):
        error.remedy = f"{error.remedy} {MENDED}"
    return error


def begin_anew(checkpoint: SparkCheckpoint) -> str:
    """Return the remedy for a checkpoint of which no batch was decided."""
    return (
        f"The ledger is empty: if it is the right one, nothing was delivered yet, so remove the directory "
        f"{checkpoint.location} and start again. Else put the ledger back, and the checkpoint from a copy."
    )


def require_sources(ledger: Ledger, checkpoint: SparkCheckpoint, sources: Sequence[SourceName], *, named: bool | None) -> None:
    """Raise SourcesChanged if Spark would not go on exactly with `sources`, which are in the order of the plan.

    Spark knows most sources by their place in the plan alone. It would read one by the log of another, and log what it found
    there, so this is refused before Spark starts. Of sources with names see `named_sources`. `named`: whether the pipeline names
    its sources, None where the user's code has opened them. Costs two reads of the ledger, and some more behind an adoption.
    """
    planned = checkpoint.latest_offsets_id()
    entry = None if planned is None or not sources else checkpoint.offsets(planned)
    if entry is None or planned is None:
        return
    if named is not None:
        require_same_keys(entry, checkpoint, named=named)
    tail = ledger.tail()
    newest = None if tail is None else continued_decision(ledger, tail.summary)
    if entry.named:
        decided = None if newest is None else newest[0].batch
        for problem in problems(
            ledger, checkpoint, entry, planned=planned, decided=decided, sources=sources, in_code=named is None
        ):
            raise problem.as_error()
    elif newest is not None:
        _require_places(newest[0].batch, checkpoint, sources)


def _require_places(newest: Batch, checkpoint: SparkCheckpoint, sources: Sequence[SourceName]) -> None:
    before = [offsets.source for offsets in newest.offsets]
    now = list(dict.fromkeys(sources))
    if before != now and not (are_places(before) and len(before) == len(now)):
        raise SourcesChanged(
            f"The query reads its sources in the order {', '.join(now)}, but the checkpoint {checkpoint.location} was made with "
            f"{', '.join(before)}.",
            remedy="Number, order and names of sources must not change under a checkpoint: put the sources back as they were.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What adopting would record, or did record. `needed` is False where the checkpoint continues the ledger as it is."""

    needed: bool
    done: bool
    query_id: QueryId | None
    next_batch_id: BatchId
    consequences: tuple[str, ...]

    def recorded(self, *, reason: str, operator: str) -> Adopted:
        return Adopted(query_id=self.query_id, next_batch_id=self.next_batch_id, reason=reason, operator=operator)


def plan_adoption(runtime: Runtime, summary: Summary, txn_app_id: str | None = None) -> Adoption:
    """Return what going on with this checkpoint would mean, judged by checkpoint and ledger. Changes nothing.

    With `txn_app_id`, the sinks' tables say which batches of the checkpoint that application delivered. Raises Refused if a
    record would come twice or the tables do not tell, and Usage if no sink has such tables.
    """
    position = position_of(runtime.checkpoint)
    planned = _judged(runtime, summary, position)
    if txn_app_id is None:
        return planned
    if summary.decided_at is not None:
        raise Usage(
            "--txn-app-id is for a checkpoint of another program, but this pipeline delivered batches itself.",
            remedy="Leave it out.",
        )
    begins = CheckpointPosition(query_id=None, planned=None, committed=None)
    # also where nothing is to adopt: a batch may be there already
    stated = delivered_by(txn_app_id, runtime.row_sinks, position or begins)
    goes_on = (f"The pipeline goes on with query {planned.query_id} from batch {planned.next_batch_id}.",)
    is_known = planned.needed and planned.query_id is not None
    return replace(planned, consequences=(*(goes_on if is_known else planned.consequences), *stated))


def _judged(runtime: Runtime, summary: Summary, position: CheckpointPosition | None) -> Adoption:
    if position is None:
        return _new_checkpoint(summary)
    if position.query_id is None:
        raise CheckpointDamaged(
            f"The checkpoint {runtime.checkpoint.location} has lost its metadata file, so Spark would not start on it.",
            remedy="Write it again: `penstock checkpoint repair FILE --yes`, with `--query-id ID` where the ledger is empty and "
            "the query's log shows its id. Or remove the checkpoint.",
        )
    conflict = _conflict(runtime, summary, position)
    stated = _continues(summary, position) if conflict is None else None
    consequences = (stated,) if stated is not None else tuple(_consequences(runtime, summary, position, conflict))
    adoption = Adoption(
        needed=stated is None,
        done=False,
        query_id=position.query_id,
        next_batch_id=position.next_batch_id,
        consequences=consequences,
    )
    return adoption if stated is not None else _with_ahead(adoption, summary)


def _with_ahead(adoption: Adoption, summary: Summary) -> Adoption:
    """Return `adoption` with what it means for sinks that kept batches in a rewind: those of the ledger's own query."""
    after = after_adoption(summary, adoption.recorded(reason="", operator=""), position=Position(0)).ahead
    notes = (
        f"Sink {sink!r} kept the batches up to {newest} when the pipeline was rewound. From here on it takes every batch, and "
        "what of those rows the checkpoint reads again is in it TWICE: take them out first."
        for sink, newest in summary.ahead.items()
        if sink not in after
    )
    return replace(adoption, consequences=(*adoption.consequences, *notes))


def _conflict(runtime: Runtime, summary: Summary, position: CheckpointPosition) -> Refused | None:
    """Return why Spark's newest planned batch would be refused, None if it would not. Raises what no adoption can resolve."""
    batch = _planned_batch(runtime, summary, position)
    if batch is None:
        return None
    try:
        recognise(batch, summary=summary, decision_of=lambda batch_id: decision_of(runtime.ledger, batch_id))
    except BatchForgotten as refusal:  # adopted, and nothing decided since: Spark does not run that batch again
        return None if _goes_on(summary, position) else refusal
    except (CheckpointReplaced, OffsetsConflict, BatchGap) as refusal:
        return refusal
    return None


def _goes_on(summary: Summary, position: CheckpointPosition) -> bool:
    return position.query_id == summary.query_id and position.next_batch_id == summary.next_batch_id


def _planned_batch(runtime: Runtime, summary: Summary, position: CheckpointPosition) -> Batch | None:
    """Return Spark's newest planned batch; without offsets where its query or number decides alone.

    Sources are named as in the newest decision, in the order of the query: the pipeline file has them in one of its own. None if
    nothing is planned, or the query reads a source in several places, which only itself can name: the start compares its offsets.
    """
    if position.planned is None or position.query_id is None:
        return None
    if position.query_id != summary.query_id:
        runtime.checkpoint.offsets(position.planned)  # no adoption resolves an entry that is torn
        return Batch(query_id=position.query_id, batch_id=position.planned, offsets=())
    return batch_in_checkpoint(runtime, summary, position.planned)


def batch_in_checkpoint(runtime: Runtime, summary: Summary, batch_id: BatchId) -> Batch | None:
    """Return batch `batch_id` as the checkpoint has it, with its sources named as in the newest decision.

    None if the query reads a source in several places. Raises CheckpointDamaged.
    """
    found = continued_decision(runtime.ledger, summary)
    decided = () if found is None else tuple(each.source for each in found[0].batch.offsets)
    is_renamed = not set(decided).issuperset(runtime.sources)
    is_own = is_renamed or not decided or runtime.named_sources
    names = runtime.source_names(batch_id) if is_own else decided
    with suppress(SourcesChanged):
        return runtime.checkpoint.batch(batch_id, names)
    return None


def _continues(summary: Summary, position: CheckpointPosition) -> str | None:
    upcoming, expected = position.next_batch_id, summary.next_batch_id
    if summary.query_id is None or expected is None:
        return "The checkpoint is new, as the ledger expects: there is nothing to adopt." if upcoming == 0 else None
    if position.query_id == summary.query_id and upcoming in {expected, expected - 1}:
        return "The checkpoint continues the ledger: there is nothing to adopt."
    return None


def _taken_over(runtime: Runtime, position: CheckpointPosition) -> Iterator[str]:
    """Say what going on with another program's checkpoint means for a pipeline that delivered nothing yet."""
    upcoming = position.next_batch_id
    yield (
        f"The ledger is empty, and query {position.query_id} of the checkpoint goes on with batch {upcoming}: batches before it "
        "are taken as delivered by whoever ran them, and are not read again."
    )
    if position.is_replay:
        yield (
            f"Batch {upcoming} is planned and not committed, so all of it is delivered here. Rows of it that another program "
            "wrote before it stopped are then TWICE in sinks that append (parquet, kafka, write: append): take them out first. "
            f"`penstock checkpoint explain {runtime.checkpoint.location}` names the files or offsets of the batch."
        )
    yield f"`penstock checkpoint inspect {runtime.checkpoint.location}` shows what was read up to there."


def _consequences(runtime: Runtime, summary: Summary, position: CheckpointPosition, conflict: Refused | None) -> Iterable[str]:
    if summary.next_batch_id is None and summary.adopted_at is None:
        return _taken_over(runtime, position)
    upcoming, expected = position.next_batch_id, summary.next_batch_id
    stated = () if conflict is None else (conflict.message,)
    if position.query_id == summary.query_id and expected is not None and upcoming > expected:
        return (
            *stated,
            f"Batches {expected} to {upcoming - 1} are taken as delivered although they were not: their records are LOST.",
        )
    return (
        *stated,
        f"The pipeline goes on with query {position.query_id} from batch {upcoming}.",
        "What that checkpoint reads again gets TWICE into sinks that append (parquet, write: append); what it skips is lost.",
        f"Compare its offsets (`penstock checkpoint inspect {runtime.checkpoint.location}`) with `penstock history FILE`.",
    )


def _new_checkpoint(summary: Summary) -> Adoption:
    if summary.query_id is None:
        stated: tuple[str, ...] = ("There is no checkpoint, and the ledger expects a new one: there is nothing to adopt.",)
    else:
        stated = (
            "Spark makes a new checkpoint and reads every source from where its options say.",
            "Records delivered before that are still in the source get TWICE into sinks that append (parquet, write: append).",
        )
    needed = summary.query_id is not None
    adoption = Adoption(needed=needed, done=False, query_id=None, next_batch_id=BatchId(0), consequences=stated)
    return _with_ahead(adoption, summary) if needed else adoption
