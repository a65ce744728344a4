"""`penstock adopt --from`: takes over a query that exists, with its checkpoint, and says of each sink what is known of it.

Order of durable steps: the fence, a copy of the checkpoint at its newest committed batch, the directories that Spark's file sink
filled, and the entry `Adopted`, which lets the pipeline start. The same command finishes what was interrupted. The query's own
checkpoint is only read.
"""

import getpass
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from penstock.checkpoint.copying import UNFINISHED, copy_checkpoint, is_empty
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.faults import FaultPoint
from penstock.core.model import Adopted, BatchId, QueryId, SinkName, Summary
from penstock.errors import CheckpointDamaged, Refused, Usage
from penstock.observe.status import CheckpointPosition
from penstock.run.assembly import DeliveryPlan, assemble
from penstock.run.continuation import position_of
from penstock.run.operations import coordinating
from penstock.run.runtime import Runtime, opened_by_this_process, prepare
from penstock.run.sink_origins import SinkOrigin, TakesOverFiles, origins
from penstock.spec.pipeline import without_ledger

COPY = FaultPoint("adopt.copy", "The checkpoint of a query that is taken over is copied.")
FILES = FaultPoint("adopt.files", "A directory that Spark's file sink filled is taken over.")
RECORD = FaultPoint("adopt.record", "The ledger records that a query is taken over.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """What taking over the query `query_id` means, or did: the pipeline goes on with `next_batch_id`.

    `origin` is the query's checkpoint, `checkpoint` the pipeline's. `replayed`: the batch that the query planned and did not
    commit, None if there is none. `needed` is False where the ledger has the adoption already.
    """

    origin: str
    checkpoint: str
    query_id: QueryId
    next_batch_id: BatchId
    sinks: tuple[SinkOrigin, ...]
    replayed: BatchId | None = None
    needed: bool = True
    done: bool = False

    @property
    def refused(self) -> bool:
        """Whether a row would be lost or come twice, by what is known."""
        return any(sink.refused for sink in self.sinks)


def take_over(
    plan: DeliveryPlan,
    origin: SparkCheckpoint,
    *,
    reason: str,
    yes: bool,
    txn_app_id: str | None = None,
    trusted: Sequence[SinkName] = (),
) -> TakeOver:
    """State what going on with the checkpoint `origin` of another query means; with `yes` do it, or finish an earlier call.

    `trusted`: sinks of which the caller states that nothing is in them of the batch that the query did not commit. `txn_app_id`:
    see `adopt`. Raises Refused where a row would be lost or come twice, for a pipeline that has delivered batches and for a
    checkpoint that is not empty; CheckpointDamaged, Usage.
    """
    with closing(assemble(plan)) as runtime:
        asked = _Asked(plan=plan, runtime=runtime, origin=origin, txn_app_id=txn_app_id, trusted=frozenset(trusted))
        asked.require_sensible()
        planned = asked.plan_act()
        if not yes:
            return planned
        _require_possible(planned)
        with coordinating(runtime) as coordinator:
            prepare(runtime, schema=None)
            coordinator.open(opened_by_this_process(runtime))
            planned = asked.plan_act()  # I2: a run that was alive may have decided batches meanwhile
            _require_possible(planned)
            asked.copy_checkpoint()
            asked.take_over_files(planned)
            asked.require_stopped(planned)
            if planned.needed:
                body = Adopted(
                    query_id=planned.query_id,
                    next_batch_id=planned.next_batch_id,
                    reason=reason,
                    operator=getpass.getuser(),
                )
                with RECORD.around():
                    coordinator.adopt(body)
        return replace(planned, done=True)


def _require_possible(planned: TakeOver) -> None:
    refused = next((sink for sink in planned.sinks if sink.refused), None)
    if refused is not None and refused.refused is not None:
        raise Refused(refused.refused, remedy=refused.remedy or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One request to take a query over, and what it works on."""

    plan: DeliveryPlan
    runtime: Runtime
    origin: SparkCheckpoint
    txn_app_id: str | None
    trusted: frozenset[SinkName]

    def require_sensible(self) -> None:
        names = [sink.name for sink in self.runtime.row_sinks]
        unknown = next((name for name in self.trusted if name not in names), None)
        if unknown is not None:
            raise Usage(f"The pipeline has no sink {unknown!r} to trust.", remedy=f"It has {', '.join(names)}.")
        if (text := without_ledger(self.plan.settings)) is not None:
            raise Usage(f"--from is given, but the pipeline has no ledger: {text}", remedy="Demand `guarantee: exactly_once`.")

    @property
    def is_in_place(self) -> bool:
        return self.origin.location == self.runtime.checkpoint.location

    def plan_act(self) -> TakeOver:
        """Return what the act means, by ledger, both checkpoints and sinks. Changes nothing."""
        tail = self.runtime.ledger.tail()
        summary = Summary() if tail is None else tail.summary
        if summary.decided_at is not None:
            raise Usage(
                f"--from is given, but pipeline {self.plan.pipeline!r} has delivered batches itself.",
                remedy="Leave it out to adopt another checkpoint, or give the query that exists a pipeline of its own.",
            )
        position, query_id = self._position()
        self._require_free(query_id)
        upcoming = position.next_batch_id
        is_recorded = (summary.query_id, summary.next_batch_id) == (query_id, upcoming)
        return TakeOver(
            origin=self.origin.location,
            checkpoint=self.runtime.checkpoint.location,
            query_id=query_id,
            next_batch_id=upcoming,
            sinks=tuple(origins(self.plan, self.runtime, position, txn_app_id=self.txn_app_id, trusted=self.trusted)),
            replayed=upcoming if position.is_replay else None,
            needed=not is_recorded,
        )

    def _position(self) -> tuple[CheckpointPosition, QueryId]:
        """Return where the query stands. Raises Usage if it has no checkpoint, CheckpointDamaged, Refused."""
        position = position_of(self.origin)
        if position is None:
            raise Usage(
                f"{self.origin.location} holds no checkpoint of Spark.",
                remedy="Name the directory that the query has as its option checkpointLocation.",
            )
        if position.query_id is None:
            raise CheckpointDamaged(
                f"The checkpoint {self.origin.location} has lost its metadata file.",
                remedy=f"Give it a query id again: `penstock checkpoint repair {self.origin.location} --query-id ID --yes`, with "
                "the id that the old query's log shows.",
            )
        if position.committed is None:
            raise Refused(
                f"The checkpoint {self.origin.location} has no committed batch: there is nothing to go on from.",
                remedy="Start the pipeline without it, or let the query finish its first batch.",
            )
        return position, position.query_id

    def _require_free(self, query_id: QueryId) -> None:
        """Raise Refused if the pipeline's checkpoint is of another query. A copy that an earlier call made may be there."""
        files = self.runtime.checkpoint.files
        metadata = files.read("metadata")
        if self.is_in_place or metadata == UNFINISHED or (metadata is None and is_empty(files)):
            return
        found = None if metadata is None else self.runtime.checkpoint.query_id()
        if found != query_id:
            raise Refused(
                f"The pipeline's checkpoint {files.location} is not empty, and not of query {query_id}.",
                remedy="Move it away, or set `checkpoint` of the pipeline file to an empty place.",
            )

    # --- carrying out

    def copy_checkpoint(self) -> None:
        """Copy the checkpoint as of its newest committed batch, unless an earlier call made that copy."""
        target = self.runtime.checkpoint
        if self.is_in_place:
            return
        with COPY.around():
            if target.files.read("metadata") not in {None, UNFINISHED}:
                if target.latest_commit_id() == self.origin.latest_commit_id():
                    return
                target.files.write("metadata", UNFINISHED)  # the query went on since that copy
            copy_checkpoint(self.origin.files, target.files)

    def take_over_files(self, planned: TakeOver) -> None:
        sinks = {sink.name: sink for sink in self.runtime.row_sinks if isinstance(sink, TakesOverFiles)}
        for found in planned.sinks:
            for account, files in found.files.items():
                with FILES.around():
                    sinks[found.sink].adoptions()[account].carry_out(files)

    def require_stopped(self, planned: TakeOver) -> None:
        """Raise Refused if the query went on meanwhile: the ledger would record a batch that is not its last one."""
        position, _ = self._position()
        if position.next_batch_id != planned.next_batch_id or position.is_replay != (planned.replayed is not None):
            raise Refused(
                f"The query of the checkpoint {self.origin.location} went on with batch {position.next_batch_id} meanwhile, "
                f"expected {planned.next_batch_id}.",
                remedy="Stop it for good, and run the command again.",
            )
