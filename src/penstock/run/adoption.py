"""`penstock adopt`: what accepting the present checkpoint would mean, stated first and recorded only on request."""

import getpass
from dataclasses import dataclass, replace

from penstock.commit.identity import recognise
from penstock.commit.publication import decision_of
from penstock.core.model import Adopted, BatchId, QueryId, Summary
from penstock.errors import BatchForgotten, BatchGap, CheckpointDamaged, CheckpointReplaced, OffsetsConflict, Refused
from penstock.observe.status import CheckpointPosition
from penstock.run.assembly import DeliveryPlan
from penstock.run.operations import opened_runtime
from penstock.run.preflight import position_of
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What adopting would record, or did record. `needed` is False where the checkpoint continues the ledger as it is."""

    needed: bool
    done: bool
    query_id: QueryId | None
    next_batch_id: BatchId
    consequences: tuple[str, ...]

    def recorded(self, *, reason: str, operator: str) -> Adopted:
        """Return the entry's body for the ledger."""
        return Adopted(query_id=self.query_id, next_batch_id=self.next_batch_id, reason=reason, operator=operator)


def adopt(plan: DeliveryPlan, *, reason: str, yes: bool) -> Adoption:
    """State what adopting means; with `yes` fence, publish what is decided, and record the adoption. Raises CheckpointDamaged."""
    with opened_runtime(plan) as runtime:
        tail = runtime.ledger.tail()
        adoption = plan_adoption(runtime, Summary() if tail is None else tail.summary)
        if not yes or not adoption.needed:
            return adoption
        coordinator = coordinator_of(runtime)
        prepare(runtime, schema=None)
        coordinator.open(opened_by_this_process(runtime))
        coordinator.adopt(adoption.recorded(reason=reason, operator=getpass.getuser()))
        return replace(adoption, done=True)


def plan_adoption(runtime: Runtime, summary: Summary) -> Adoption:
    """Return what going on with this checkpoint would mean, judged by checkpoint and ledger. Changes nothing."""
    position = position_of(runtime.checkpoint)
    if position is None:
        return _new_checkpoint(summary)
    if position.query_id is None:
        raise CheckpointDamaged(
            f"The checkpoint {runtime.checkpoint.location} has lost its metadata file, so Spark would not start on it.",
            remedy='Write {"id":"…"} into it with the query id that `penstock history` shows, or remove the checkpoint.',
        )
    conflict = _conflict(runtime, summary, position)
    stated = _continues(summary, position) if conflict is None else None
    return Adoption(
        needed=stated is None,
        done=False,
        query_id=position.query_id,
        next_batch_id=position.next_batch_id,
        consequences=(stated,) if stated is not None else _consequences(summary, position, conflict),
    )


def _conflict(runtime: Runtime, summary: Summary, position: CheckpointPosition) -> Refused | None:
    """Return why Spark's newest planned batch would be refused, None if it would not. Raises what no adoption can resolve."""
    if position.planned is None:
        return None
    try:
        batch = runtime.checkpoint.batch(position.planned, runtime.source_names(position.planned))
        recognise(batch, summary=summary, decision_of=lambda batch_id: decision_of(runtime.ledger, batch_id))
    except (CheckpointReplaced, OffsetsConflict, BatchGap, BatchForgotten) as refusal:
        return refusal
    return None


def _continues(summary: Summary, position: CheckpointPosition) -> str | None:
    upcoming, expected = position.next_batch_id, summary.next_batch_id
    if summary.query_id is None or expected is None:
        return "The ledger is empty and the checkpoint is new: there is nothing to adopt." if upcoming == 0 else None
    if position.query_id == summary.query_id and upcoming in {expected, expected - 1}:
        return "The checkpoint continues the ledger: there is nothing to adopt."
    return None


def _consequences(summary: Summary, position: CheckpointPosition, conflict: Refused | None) -> tuple[str, ...]:
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
        "Compare its offsets (`penstock checkpoint inspect`) with the last ones delivered (`penstock history`).",
    )


def _new_checkpoint(summary: Summary) -> Adoption:
    if summary.query_id is None:
        stated: tuple[str, ...] = ("There is neither a checkpoint nor anything delivered: there is nothing to adopt.",)
    else:
        stated = (
            "Spark makes a new checkpoint and reads every source from where its options say.",
            "Records delivered before that are still in the source get TWICE into sinks that append (parquet, write: append).",
        )
    return Adoption(needed=summary.query_id is not None, done=False, query_id=None, next_batch_id=BatchId(0), consequences=stated)
