"""`PipelineActs`: what a person does to a pipeline beside its runs, one method per command. `Pipeline` has them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.commit.outcome import Recovered
from penstock.core.model import BatchId, SinkName
from penstock.core.topics import OpenTransaction
from penstock.run import operations
from penstock.run.assembly import DeliveryPlan
from penstock.run.continuation import Adoption
from penstock.run.doctor import end_transaction
from penstock.run.startable import require_fillable
from penstock.spec.pipeline import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.checkpoint.savepoint import Savepoint
    from penstock.run.backfill import Backfill, OnBatch
    from penstock.run.removal import Acceptance
    from penstock.run.replay import Replay
    from penstock.run.rewind import Rewind
    from penstock.run.savepoints import CreatedSavepoint, Fork, SavepointCheck
    from penstock.run.taking_over import TakeOver


class PipelineActs(ABC):
    """Acts on ledger, checkpoint and sinks. Those with `yes` only state without it what they would do."""

    settings: PipelineSettings

    @property
    @abstractmethod
    def plan(self) -> DeliveryPlan:
        """The configuration of its delivery."""

    @abstractmethod
    def session(self) -> "SparkSession":
        """Return a Spark session for it."""

    def replay(
        self,
        spark: "SparkSession | None" = None,
        *,
        batch: int | None = None,
        rows: Sequence[str] = (),
        reason: str | None = None,
        yes: bool = False,
    ) -> "Replay":
        """Deliver records of the quarantine after all, by the pipeline as it is now; without `yes` only say which.

        `batch` brought them, `rows` are their ids, `reason` is their rule or sink, `undecodable`, or a part of their error. They
        are a batch of their own, and are marked as replayed by its decision; what is refused again is put aside again. A driver
        that runs is fenced. A call that was killed is finished by the next start of anything. Raises Refused, before anything is
        done, for records that would have to pass an operator with state, and for sinks in which they would replace others.
        """
        from penstock.run.quarantined import require_quarantine

        require_quarantine(self.plan)
        spark = spark or self.session()
        from penstock.run.replay import Choice, replay

        choice = Choice(batch=batch, ids=tuple(rows), reason=reason)
        return replay(self.settings, self.plan, spark, choice=choice, yes=yes)

    def recover(self) -> Recovered:
        """Publish an outstanding decision and sweep, without Spark. A driver that still runs is fenced."""
        return operations.recover(self.plan)

    def adopt(self, *, reason: str = "", yes: bool = False, txn_app_id: str | None = None) -> Adoption:
        """Accept the checkpoint as it is, and fence a driver that still runs; without `yes` only state what that means.

        `txn_app_id`: what a `foreachBatch` of another program wrote into Delta tables as `txnAppId`, with the batch's number as
        `txnVersion`. Raises Refused if a batch that it delivered would come twice.
        """
        return operations.adopt(self.plan, reason=reason, yes=yes, txn_app_id=txn_app_id)

    def take_over(
        self,
        checkpoint: str,
        *,
        options: Mapping[str, str] | None = None,
        reason: str = "",
        yes: bool = False,
        txn_app_id: str | None = None,
        trust: Sequence[str] = (),
    ) -> "TakeOver":
        """Go on where another query stopped, with a copy of its `checkpoint`; without `yes` only state what that means.

        `checkpoint`: its directory or the URL of a store with its `options`; it is only read, and may be the pipeline's own. What
        Spark's file sink wrote into a directory becomes part of the account there. `trust`: sinks that hold nothing of a batch
        that the query did not commit. `txn_app_id` as for `adopt`, by default the query id. Raises Refused if a row would be lost
        or come twice, CheckpointDamaged, Usage.
        """
        from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
        from penstock.run.taking_over import take_over

        place = checkpoint if "://" in checkpoint else str(Path(checkpoint).resolve())
        origin = SparkCheckpoint(place, options=options)
        trusted = [SinkName(name) for name in trust]
        return take_over(self.plan, origin, reason=reason, yes=yes, txn_app_id=txn_app_id, trusted=trusted)

    def create_savepoint(
        self, name: str, *, to: str | None = None, options: Mapping[str, str] | None = None
    ) -> "CreatedSavepoint":
        """Copy the checkpoint, as of its newest committed batch, with its place in the ledger. The pipeline may run meanwhile.

        `to`: where savepoints are, a directory or the URL of a store with its `options`; `<home>/savepoints` by default. Raises
        Refused if there is one of that name, CheckpointMissing, CheckpointDamaged, Retryable.
        """
        from penstock.run import savepoints

        return savepoints.create(self.plan, name, savepoints.place_of(self.plan, to=to, options=options))

    def savepoints(self, *, to: str | None = None, options: Mapping[str, str] | None = None) -> "Sequence[Savepoint]":
        """Return every savepoint, oldest first. `to` and `options`: see `create_savepoint`."""
        from penstock.checkpoint.savepoint import savepoints_in
        from penstock.run import savepoints

        return savepoints_in(savepoints.place_of(self.plan, to=to, options=options))

    def verify_savepoint(self, name: str, *, to: str | None = None, options: Mapping[str, str] | None = None) -> "SavepointCheck":
        """Compare every file of a savepoint with its checksum, and its place with the ledger. Raises Failed if there is none."""
        from penstock.run import savepoints

        return savepoints.check(self.plan, name, savepoints.place_of(self.plan, to=to, options=options))

    def delete_savepoint(
        self, name: str, *, to: str | None = None, options: Mapping[str, str] | None = None, yes: bool = False
    ) -> int:
        """Delete a savepoint, without `yes` only count its files. Others keep all of theirs. Raises Failed if there is none."""
        from penstock.run import savepoints

        return savepoints.remove(name, savepoints.place_of(self.plan, to=to, options=options), yes=yes)

    def restore_savepoint(
        self,
        name: str,
        *,
        to: str | None = None,
        options: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        reason: str = "",
        yes: bool = False,
    ) -> "Rewind":
        """Take every batch after a savepoint back from sinks and ledger, and put its checkpoint in place; see `rewind`.

        `keep`: sinks that are gone since an earlier call was interrupted, to finish that.
        """
        from penstock.run import savepoints

        place, gone = savepoints.place_of(self.plan, to=to, options=options), [SinkName(name) for name in keep]
        return savepoints.restore(self.plan, name, place, reason=reason, yes=yes, keep=gone)

    def fork(
        self,
        name: str,
        other: "PipelineActs",
        *,
        to: str | None = None,
        options: Mapping[str, str] | None = None,
        yes: bool = False,
    ) -> "Fork":
        """Let a second pipeline go on from a savepoint, with ledger, checkpoint and sinks of its own; without `yes` only check.

        Raises Refused if its ledger or its checkpoint holds anything, SourcesChanged, CheckpointDamaged, Usage.
        """
        from penstock.run import savepoints

        place = savepoints.place_of(self.plan, to=to, options=options)
        return savepoints.fork(self, name, other, place, yes=yes)

    def rewind(self, to_batch: int, *, keep: Sequence[str] = (), reason: str = "", yes: bool = False) -> "Rewind":
        """Take back every batch after `to_batch`, so that Spark does them again; without `yes` only state what that means.

        Sinks in `keep` stay ahead, and skip these batches when they come again. With `yes` raises Refused where another sink
        cannot lose them exactly, and where their input is gone; killed at any moment, the same call finishes it.
        """
        from penstock.run.rewind import rewind

        return rewind(self.plan, to_batch=BatchId(to_batch), keep=[SinkName(name) for name in keep], reason=reason, yes=yes)

    def backfill(
        self,
        sink: str,
        spark: "SparkSession | None" = None,
        *,
        from_batch: int | None = None,
        dry_run: bool = False,
        on_batch: "OnBatch" = lambda batch: None,  # noqa: ARG005
    ) -> "Backfill":
        """Give a sink the batches that were decided without it, from `from_batch` on, beside a driver that runs.

        The sources are read once more by the ledger's offsets. Each batch is decided and published once. Then the sink joins the
        run that has it, and until then it is left out. A call that was killed is finished by the next one. A driver is fenced
        where it delivers to the sink already, or the sink may put rows aside. `dry_run`: only say what would be done. Raises
        Refused, before anything is done, for a query that keeps state, and if a batch cannot be read again.
        """
        require_fillable(self.settings, SinkName(sink))
        spark = spark or self.session()
        from penstock.run.backfill import backfill

        return backfill(
            self.settings,
            self.plan,
            spark,
            sink=SinkName(sink),
            from_batch=None if from_batch is None else BatchId(from_batch),
            dry_run=dry_run,
            on_batch=on_batch,
        )

    def sweep(self, *, yes: bool = False) -> Sequence[str]:
        """Collect dead staging and name it; without `yes` only name it."""
        return operations.sweep(self.plan, dry_run=not yes)

    def end_transaction(self, name: str) -> Sequence[OpenTransaction]:
        """Abort the transaction that `doctor` lists by this name: readers pass over its records. Raises Usage if none is open."""
        return end_transaction(self.plan, name)

    def accept_removed(
        self,
        sink: str | None = None,
        *,
        before: str | None = None,
        forgotten: bool = False,
        reason: str = "",
        yes: bool = False,
    ) -> "Acceptance":
        """Compare every sink, or `sink`, with the ledger, and state which whole files are missing where nothing else differs.

        With `yes` the ledger records them as removed on purpose; `verify` then expects them no more. `before`: only those of
        batches before this number, or decided before this date or time (ISO 8601). `forgotten`: also some of the files of batches
        that the ledger has forgotten; those that are left are taken as they are. A driver that runs goes on. Raises Refused for
        a place without its marker, Retryable while a decided batch is not in every sink.
        """
        from penstock.run.removal import accept_removed

        name = None if sink is None else SinkName(sink)
        return accept_removed(self.plan, sink=name, before=before, forgotten=forgotten, reason=reason, yes=yes)
