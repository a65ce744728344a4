"""The acts on the checkpoint of a pipeline: refused while a driver runs, and where the ledger would refuse the next start."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial

from penstock.checkpoint.act import Act
from penstock.checkpoint.acting import Performed, Undone, perform, undo
from penstock.checkpoint.gc_plan import SPARK_RETAINS, plan_gc
from penstock.checkpoint.repair_plan import Decided, plan_repair
from penstock.checkpoint.rewind_plan import plan_rewind
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.commit.identity import recognise
from penstock.commit.publication import decision_of
from penstock.core.kafka_offset import without_notes
from penstock.core.model import BatchId, Json, Summary
from penstock.errors import CheckpointDamaged, CheckpointReplaced, OffsetsConflict, Refused, SourcesChanged
from penstock.observe.driver import Driver
from penstock.observe.status import status
from penstock.observe.supervision import supervision
from penstock.protocols import Ledger
from penstock.run.assembly import DeliveryPlan, assemble, checkpoint_of, ledger_of
from penstock.run.continuation import MADE_AGAIN, batch_in_checkpoint, begin_anew, require_not_lost
from penstock.run.lost_state import require_state
from penstock.run.operations import coordinating
from penstock.run.runtime import Runtime, opened_by_this_process, prepare
from penstock.spark.active_queries import active_query_ids, end_upkeep_of_state
from penstock.spec.pipeline import without_ledger


def rewind_checkpoint(plan: DeliveryPlan, *, to_batch: BatchId, yes: bool) -> Performed:
    """Take the checkpoint back to the end of a batch, where the ledger recognises what Spark runs then; see `plan_rewind`.

    With `yes`, a driver that cannot be seen from here is fenced first. Raises Refused.
    """
    return perform_act(plan, "rewind", {"to_batch": to_batch}, lambda runtime: _rewind(runtime, plan, to_batch), yes=yes)


def collect_checkpoint(plan: DeliveryPlan, *, keep_batches: int | None, yes: bool) -> Performed:
    """Remove what no restart needs, nor a rewind to one of the newest batches; see `plan_gc`. None: as many as Spark retains."""
    conf = getattr(plan.settings, "spark", None)
    retained = "" if conf is None else str(conf.conf.get("spark.sql.streaming.minBatchesToRetain", ""))
    number = keep_batches or (int(retained) if retained.isdecimal() else SPARK_RETAINS)
    request: dict[str, Json] = {"keep_batches": number}
    return perform_act(plan, "gc", request, lambda runtime: plan_gc(runtime.checkpoint.files, keep_batches=number), yes=yes)


def repair_checkpoint(plan: DeliveryPlan, *, query_id: str | None, yes: bool) -> Performed:
    """Repair the checkpoint with what the ledger knows of it; see `plan_repair`. Fences as `rewind_checkpoint` does."""

    def make(runtime: Runtime) -> Act:
        require_not_lost(runtime.ledger, runtime.checkpoint)
        _require_state(plan, runtime.ledger)
        decided = _decided(runtime, plan)
        try:
            return plan_repair(runtime.checkpoint.files, query_id=query_id, decided=decided)
        except Refused as beyond:
            if decided is not None and decided.query_id is None and _is_at_its_begin(runtime.checkpoint):
                beyond.remedy = begin_anew(runtime.checkpoint)
            elif decided is not None and decided.query_id is not None:
                beyond.remedy = f"Restore it from a copy. {MADE_AGAIN}"
            raise

    return perform_act(plan, "repair", {"query_id": query_id}, make, yes=yes)


def require_whole(plan: DeliveryPlan) -> None:
    """Raise CheckpointMissing if the pipeline has no checkpoint, though its ledger continues one.

    Raises CheckpointDamaged for one that has lost its state.
    """
    with closing(ledger_of(plan)) as ledger:
        require_not_lost(ledger, checkpoint_of(plan))
        _require_state(plan, ledger)


def _require_state(plan: DeliveryPlan, ledger: Ledger) -> None:
    tail = ledger.tail()
    if tail is not None:
        require_state(plan, ledger, tail.summary)


def _is_at_its_begin(checkpoint: SparkCheckpoint) -> bool:
    """Return whether Spark has planned no batch but the first, and committed none, as far as names tell."""
    return checkpoint.latest_commit_id() is None and not checkpoint.latest_offsets_id()


def _decided(runtime: Runtime, plan: DeliveryPlan) -> Decided | None:
    """Return what the ledger knows of the checkpoint; None if it is not asked.

    Where it has decided nothing of the query, a start goes on with batch 0 alone, and refuses a checkpoint that is further.
    """
    tail = runtime.ledger.tail()
    summary = Summary() if tail is None else tail.summary
    if without_ledger(plan.settings) is not None:
        return None
    if summary.query_id is None or summary.next_batch_id is None:
        return Decided(query_id=None, next_batch_id=BatchId(0), ends=lambda _: None)
    decided = Decided(query_id=summary.query_id, next_batch_id=summary.next_batch_id, ends=partial(_ends, runtime))
    with suppress(CheckpointDamaged):
        require_query(runtime.checkpoint.query_id() or summary.query_id, summary)
    for batch_id in range(max(summary.next_batch_id - 2, 0), summary.next_batch_id):
        with suppress(CheckpointDamaged):
            require_same_ends(runtime, BatchId(batch_id))
    return decided


def _ends(runtime: Runtime, batch_id: BatchId) -> Mapping[str, str | None] | None:
    """Return the offsets that a decided batch ended with, by the keys of the checkpoint; None if they are not known."""
    decision = decision_of(runtime.ledger, batch_id)
    planned = runtime.checkpoint.latest_offsets_id()
    if decision is None or planned is None:
        return None
    names = [offsets.source for offsets in decision.batch.offsets]
    for of in (planned, BatchId(planned - 1)):  # the newest entry can be the one that is torn
        with suppress(SourcesChanged, CheckpointDamaged):
            keys = runtime.checkpoint.keys(of, names)
            return {key: offsets.end for offsets in decision.batch.offsets for key in keys[offsets.source]}
    return None


def require_same_ends(runtime: Runtime, batch_id: BatchId) -> None:
    """Raise OffsetsConflict if the checkpoint is one that the ledger does not know: `metadata` can be lost."""
    entry, ends = runtime.checkpoint.offsets(batch_id), _ends(runtime, batch_id)
    if entry is not None and ends is not None and ends != {key: without_notes(one) for key, one in entry.offsets.items()}:
        raise OffsetsConflict(
            f"offsets/{batch_id} of the checkpoint {runtime.checkpoint.location} is not what the ledger decided for that batch.",
            remedy="The checkpoint is an older copy or another one: put the newest one back.",
        )


def require_query(query_id: str | None, summary: Summary) -> None:
    """Raise CheckpointReplaced for the checkpoint of another query than the one that the ledger continues."""
    if query_id != summary.query_id:
        raise CheckpointReplaced(
            f"The ledger continues query {summary.query_id}, but the checkpoint is of query {query_id}.",
            remedy="Put the checkpoint of that query back, or read what `penstock adopt` says about accepting this one.",
        )


def undo_act(plan: DeliveryPlan, *, verb: str, yes: bool) -> Undone:
    """Undo the newest act on the pipeline's checkpoint; see `undo`. With `yes`, fences as `rewind_checkpoint` does."""
    with stopped(plan) as (runtime, _):
        files = runtime.checkpoint.files
        found = undo(files, verb=verb, yes=False)
        if not yes:
            return found
        with _fenced(runtime, plan):
            return undo(files, verb=verb, yes=True)


def perform_act(
    plan: DeliveryPlan,
    verb: str,
    request: dict[str, Json],
    make: Callable[[Runtime], Act],
    *,
    doing: Callable[[Runtime], Act] | None = None,
    yes: bool,
) -> Performed:
    """Return the act that `make` plans for the pipeline's checkpoint; with `yes`, fence every run and carry it out.

    `doing` plans the one that is carried out, behind the fence, where `make` can only show it. Raises Refused while a driver
    runs, and what these two raise.
    """
    with stopped(plan) as (runtime, notes):
        files = runtime.checkpoint.files

        def act(make: Callable[[Runtime], Act] = make) -> Act:
            made = make(runtime)
            return replace(made, notes=(*made.notes, *notes))

        found = perform(files, verb=verb, request=request, plan=act, yes=False)
        if not yes or not (found.act.steps or found.finished):
            return found
        with _fenced(runtime, plan) as require_newest:

            def fenced() -> Act:
                made = act(doing or make)
                require_newest()  # making it may take Spark minutes, in which another run can go on with the checkpoint
                return made

            return perform(files, verb=verb, request=request, plan=fenced, yes=True)


@contextmanager
def stopped(plan: DeliveryPlan) -> Iterator[tuple[Runtime, tuple[str, ...]]]:
    """Yield what the pipeline runs on, and what is to be said of a driver elsewhere. Raises Refused if one is known to run."""
    with closing(assemble(plan, demanded=False)) as runtime:
        noted = supervision(plan.settings.home)
        if noted is not None and noted.state in {"running", "waiting"}:
            raise _runs(plan, f"{noted.owner} supervises it", "Stop `penstock supervise`")
        driver = status(pipeline=plan.pipeline, ledger=runtime.ledger, checkpoint=None).driver
        is_this = driver is not None and (driver.host, driver.pid) == (socket.gethostname(), os.getpid())
        if driver is not None and driver.state == "running" and not is_this:
            raise _runs(plan, driver.text, "Stop it")
        _end_here(plan, runtime)
        yield runtime, tuple(_of_elsewhere(driver))


def _end_here(plan: DeliveryPlan, runtime: Runtime) -> None:
    """Raise Refused if the query runs in this process; else see that its Spark writes no state any more."""
    active = active_query_ids()
    if not active:
        end_upkeep_of_state()
        return
    with suppress(CheckpointDamaged):
        if runtime.checkpoint.query_id() in active:
            raise _runs(plan, "its query runs in this process", "Stop the query")


def _of_elsewhere(driver: Driver | None) -> Iterator[str]:
    if driver is not None and driver.state == "unknown":
        yield f"Whether a driver runs is {driver.text}. With --yes it is fenced first; make sure that it has ended."


def _runs(plan: DeliveryPlan, what: str, stop: str) -> Refused:
    return Refused(
        f"A driver of {plan.pipeline!r} works on its checkpoint: {what}.", remedy=f"{stop}, and run the command again."
    )


@contextmanager
def _fenced(runtime: Runtime, plan: DeliveryPlan) -> Iterator[Callable[[], None]]:
    """Fence every run, and publish what is decided, as `recover` does; not where there is nothing in the ledger to fence.

    Yields what raises as soon as a newer run has fenced this command.
    """
    if without_ledger(plan.settings) is not None or runtime.ledger.tail() is None:
        yield lambda: None
        return
    with coordinating(runtime) as coordinator:
        prepare(runtime, schema=None)
        coordinator.open(opened_by_this_process(runtime))
        yield coordinator.require_newest
        coordinator.require_newest()


def _rewind(runtime: Runtime, plan: DeliveryPlan, to_batch: BatchId) -> Act:
    """Return the rewind. The plan of a batch that is decided stays, so that it comes again with the same offsets."""
    tail = runtime.ledger.tail()
    summary = Summary() if tail is None else tail.summary
    files, upcoming, expected = runtime.checkpoint.files, BatchId(to_batch + 1), summary.next_batch_id
    if expected is None or without_ledger(plan.settings) is not None:
        made = plan_rewind(files, to_batch=to_batch)
        return replace(made, notes=("The ledger has decided no batch of this checkpoint: it does not tell what sinks have.",))
    require_query(runtime.checkpoint.query_id(), summary)
    if not expected - 1 <= upcoming <= expected:
        raise _beyond(upcoming, expected)
    for batch_id in range(to_batch, expected):
        _require_decided(runtime, summary, BatchId(batch_id))
    made = plan_rewind(files, to_batch=to_batch, keeps_plan=upcoming < expected)
    is_decided = f"The ledger has decided batch {upcoming}: Spark runs it again, and no sink gets it twice."
    return replace(made, notes=(is_decided,) if upcoming < expected else ())


def _require_decided(runtime: Runtime, summary: Summary, batch_id: BatchId) -> None:
    """Raise Refused unless the checkpoint has the batch as the ledger decided it. One before an adoption is not compared."""
    if decision_of(runtime.ledger, batch_id) is None:
        return
    batch = batch_in_checkpoint(runtime, summary, batch_id)
    if batch is not None:
        recognise(batch, summary=summary, decision_of=lambda number: decision_of(runtime.ledger, number))


def _beyond(upcoming: BatchId, expected: BatchId) -> Refused:
    if upcoming > expected:
        return Refused(
            f"The ledger continues with batch {expected}, and Spark would run batch {upcoming} next: "
            f"the records of batches {expected} to {upcoming - 1} would be lost.",
            remedy=f"Name batch {expected - 1}, or read what `penstock adopt` says about going on with batch {upcoming}.",
        )
    return Refused(
        f"The ledger has decided batches {upcoming} to {expected - 1}, and Spark would plan batches from {upcoming + 1} on anew, "
        "with other offsets than those: no start would go on.",
        remedy=f"Name batch {max(expected - 2, 0)}: the one after it runs again with the offsets that were decided. Or take "
        f"batches back from sinks and ledger, too: `penstock rewind FILE --to-batch {upcoming - 1}`",
    )
