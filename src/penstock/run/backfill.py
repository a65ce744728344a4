"""`penstock backfill`: gives a sink that was added later the batches that were decided without it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.commit.acts import ActingCoordinator
from penstock.commit.backfill import LackingBatches, give_lacking, lacking_batches
from penstock.commit.beside import BesideCoordinator, give_beside, is_apart_or_absent
from penstock.commit.publication import decision_in
from penstock.core.backfill import BackfillOpened
from penstock.core.model import (
    BatchId,
    Decision,
    Entry,
    Generation,
    OffsetRange,
    PipelineName,
    Published,
    SinkName,
    SourceName,
    Totals,
    new_nonce,
)
from penstock.errors import Refused, Retryable
from penstock.protocols import Sink
from penstock.run.assembly import DeliveryPlan, assemble
from penstock.run.batch_query import BatchQuery
from penstock.run.chain.opening import ChainRange
from penstock.run.continuation import require_continuation, require_sources
from penstock.run.operations import coordinating
from penstock.run.past_input import PastInput
from penstock.run.runtime import Runtime, now_ms, opened_by_this_process, owner_of_this_process, prepare
from penstock.source.chain.settings import is_chained
from penstock.source.kafka.decode import decoded
from penstock.source.ranges import ReadsRange, range_of
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.sink import PythonSink
from penstock.stage.batch import stage_batch
from penstock.stage.path import BatchSize
from penstock.stage.quarantine import QuarantineMember

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OnBatch = Callable[["BackfilledBatch"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfilledBatch:
    """One batch that the sink is given. `rows` are those that it takes."""

    batch_id: BatchId
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """What a backfill is to do, or did: `batches` with `rows` pipeline rows, from `first_batch_id` up to `last_batch_id`.

    `given`: batches that an earlier call gave the sink. `recovered`: the newest of these was published now. `joins_at` is the
    batch with which the sink takes part in the pipeline. `done`: the sink has all of them. `generation` is None where nothing was
    to be done. `fences`: a driver that runs is fenced, not left alone. `joined`: the newest run has the sink, and delivers to it
    from now on; else the next run that has it does.
    """

    pipeline: PipelineName
    sink: SinkName
    batches: int
    rows: int
    given: int
    joins_at: BatchId
    first_batch_id: BatchId | None = None
    last_batch_id: BatchId | None = None
    generation: Generation | None = None
    recovered: bool = False
    totals: Totals = field(default_factory=Totals)
    done: bool = False
    fences: bool = False
    joined: bool = False


def backfill(
    settings: PipelineSettings,
    plan: DeliveryPlan,
    spark: "SparkSession",
    *,
    sink: SinkName,
    from_batch: BatchId | None,
    dry_run: bool,
    on_batch: OnBatch,
) -> Backfill:
    """Do what `Pipeline.backfill` describes. Everything that can be refused is refused before the ledger gets an entry."""
    source = _BatchSource.of(BatchQuery.of(settings, plan, spark))
    with closing(assemble(source.query.plan)) as runtime:
        work = _Work(source=source, runtime=runtime, sink=next(each for each in runtime.sinks if each.name == sink))
        planned, _ = work.plan(from_batch)
        if dry_run or work.has_nothing_to_do(planned):
            return replace(planned, done=not dry_run)
        if planned.fences:
            with coordinating(runtime) as coordinator:
                return work.run(coordinator, from_batch, on_batch)
        alone = replace(runtime, sinks=(work.sink,))  # the others are the driver's
        with coordinating(alone, BesideCoordinator) as coordinator:
            assert isinstance(coordinator, BesideCoordinator)
            return work.run_beside(alone, coordinator, from_batch, on_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchSource:
    """Makes the rows of a batch again: reads the sources by its offsets, and applies the transform of the pipeline file."""

    query: BatchQuery
    readers: Mapping[SourceName, ReadsRange]

    @classmethod
    def of(cls, query: BatchQuery) -> "_BatchSource":
        """Raise Refused for a query that keeps state, or a source without ranges."""
        if query.state is not None:
            raise _keeps_state(f"The transform keeps state ({query.state})")
        settings = query.settings
        readers = {
            name: ChainRange(name, settings.sources[name], each.schema)
            if is_chained(settings.sources[name])
            else range_of(name, settings.sources[name], each.schema, pipeline=query.plan.pipeline)
            for name, each in query.sources.items()
        }
        return cls(query=query, readers=readers)

    def rows(self, ranges: Sequence[OffsetRange], files: Mapping[SourceName, Sequence[str]]) -> "DataFrame":
        """Return the pipeline's rows of one batch."""
        return self.query.rows({each.source: self._table(each, files.get(each.source, ())) for each in ranges})

    def _table(self, offsets: OffsetRange, files: Sequence[str]) -> "DataFrame":
        name, decoding = offsets.source, self.query.plan.decoding
        raw = self.readers[name].rows(self.query.spark, offsets, files).alias(name)
        return self.query.meeting_rules(name, decoded(name, raw, decoding[name]) if name in decoding else raw)


@dataclass(slots=True, kw_only=True)
class _Work:
    """The backfill of one sink in this process."""

    source: _BatchSource
    runtime: Runtime
    sink: Sink
    _size: BatchSize | None = None
    _newest: BatchId | None = None

    def plan(self, from_batch: BatchId | None) -> tuple[Backfill, LackingBatches]:
        """Return what is to be done, and the batches as they were decided. Raises Refused if one cannot be read again."""
        tail = self.runtime.ledger.tail()
        if tail is None or tail.summary.next_batch_id is None:
            raise Refused(
                f"The pipeline {self.runtime.pipeline!r} has delivered nothing yet, so there is nothing to give to a sink.",
                remedy="`penstock run FILE` begins with the first batch, for all sinks.",
            )
        require_continuation(tail.summary, self.runtime.checkpoint)
        require_sources(self.runtime.ledger, self.runtime.checkpoint, self.runtime.sources, named=self.runtime.named_sources)
        if self.runtime.checkpoint.has_state():
            raise _keeps_state("The query keeps state, by its checkpoint")
        lacking = self._lacking(from_batch)
        batches = [decision_in(entry) for entry in lacking.entries]
        planned = Backfill(
            pipeline=self.runtime.pipeline,
            sink=self.sink.name,
            batches=len(batches),
            rows=sum(batch.rows_in for batch in batches),
            given=lacking.given,
            joins_at=tail.summary.next_batch_id if lacking.joined is None else lacking.joined,
            first_batch_id=batches[0].batch.batch_id if batches else None,
            last_batch_id=batches[-1].batch.batch_id if batches else None,
            fences=self._fences,
        )
        return planned, lacking

    def has_nothing_to_do(self, planned: Backfill) -> bool:
        """Return whether the sink has everything, and the ledger says so."""
        tail = self.runtime.ledger.tail()
        progress = None if tail is None else tail.summary.backfills.get(self.sink.name)
        return not planned.batches and (progress is None or (progress.ended and not progress.apart))

    @property
    def _fences(self) -> bool:
        """Whether a driver has to be fenced: it may give the sink batches itself, or the quarantine rows of this backfill."""
        member = self.runtime.quarantine
        puts_aside = member is not None and self.sink.name in member.puts_aside
        return puts_aside or not is_apart_or_absent(self.runtime.ledger, self.sink.name)

    def run_beside(
        self, alone: Runtime, coordinator: BesideCoordinator, from_batch: BatchId | None, on_batch: OnBatch
    ) -> Backfill:
        """Give the sink batch by batch beside the driver, until it lacks none, and let it join. Raises what a delivery raises."""
        prepare(alone, schema=self.source.query.schema, taken=self.source.query.taken, apart=self.sink.name)
        tail = alone.ledger.tail()
        planned, lacking = self.plan(from_batch)
        if tail is None or planned.fences:
            raise Retryable("A run with this sink was started at the same moment.", remedy="Call `penstock backfill` again.")
        opened = BackfillOpened(sink=self.sink.name, writer=new_nonce(), owner=owner_of_this_process())
        coordinator.open_beside(opened, generation=tail.generation, first=lacking.begins)
        given = give_beside(coordinator, self.sink, alone.ledger, stage=partial(self._staged, coordinator, on_batch))
        return replace(
            self._done(planned, coordinator, recovered=given.recovered, batches=given.batches),
            batches=len(given.batches),
            joins_at=coordinator.summary.next_batch_id or planned.joins_at,
            last_batch_id=self._newest,
            joined=given.joined,
        )

    def _done(
        self,
        planned: Backfill,
        coordinator: ActingCoordinator,
        *,
        recovered: Published | None,
        batches: Sequence[Published],
    ) -> Backfill:
        return replace(
            planned,
            done=True,
            generation=coordinator.generation,
            recovered=recovered is not None and not recovered.already,
            totals=sum((published.totals for published in batches), Totals()),
        )

    def _staged(self, coordinator: ActingCoordinator, on_batch: OnBatch, entry: Entry) -> Decision:
        decision = self._stage(entry, coordinator)
        self._newest = decision.batch.batch_id
        on_batch(BackfilledBatch(batch_id=decision.batch.batch_id, rows=decision.totals_of(self.sink.name).rows))
        return decision

    def run(self, coordinator: ActingCoordinator, from_batch: BatchId | None, on_batch: OnBatch) -> Backfill:
        """Fence, finish what an earlier call decided, and give the sink batch by batch. Raises what a delivery raises."""
        prepare(self.runtime, schema=self.source.query.schema, taken=self.source.query.taken, apart=self.sink.name)
        planned: list[Backfill] = []

        def lacking() -> Sequence[Entry]:
            whole, found = self.plan(from_batch)  # I2: a run that was alive may have decided batches meanwhile
            planned.append(whole)
            return found.entries

        stage = partial(self._staged, coordinator, on_batch)
        given = give_lacking(coordinator, self.sink, opened_by_this_process(self.runtime), lacking=lacking, stage=stage)
        return self._done(replace(planned[0], fences=True), coordinator, recovered=given.recovered, batches=given.batches)

    def _lacking(self, from_batch: BatchId | None) -> LackingBatches:
        lacking = lacking_batches(self.runtime.ledger, self.sink.name, from_batch=from_batch)
        _require_known(lacking)
        self._require_order(lacking)
        self._require_readable(lacking)
        return lacking

    def _require_order(self, lacking: LackingBatches) -> None:
        """Raise Refused if rows of the sink replace others, and newer ones are there already."""
        ordered = _ordered(self.source.query.settings.sinks[self.sink.name])
        if ordered is not None and lacking.joins_in_between:
            raise Refused(
                f"Sink {self.sink.name!r} ({ordered}) has taken part since batch {lacking.joined}: older rows that come now "
                "would replace newer ones.",
                remedy="Give the sink another name and an empty place, and backfill that before the next run.",
            )

    def _require_readable(self, lacking: LackingBatches) -> None:
        """Raise Refused, with their number, if batches cannot be read again."""
        lost = list(self._lost(lacking.entries))
        if not lost:
            return
        (first, why), last = lost[0], lost[-1][0]
        after = next((each for each in map(decision_in, lacking.entries) if each.batch.batch_id > last), None)
        without = "give the sink another name and an empty place" if lacking.begun else ""
        if after is None:
            else_ = without or "let the sink begin with the next batch"
            way = f"Put the input back as it was, files with their times, or {else_}."
        else:
            name, also = ("NAME", f", {without}") if lacking.begun else (self.sink.name, "")
            command = f"penstock backfill FILE --sink {name} --from-batch {after.batch.batch_id}"
            way = f"Put the input back as it was, files with their times. To go on without them{also}: `{command}`"
        span = f"batch {first}" if first == last else f"batches {first} to {last}"
        raise Refused(
            f"{len(lost)} of {len(lacking.entries)} batches cannot be read again ({span}). Batch {first}: {why}.",
            remedy=way,
        )

    def _lost(self, entries: Sequence[Entry]) -> Iterator[tuple[BatchId, str]]:
        for decision in map(decision_in, entries):
            missing = self._input.missing(decision)
            if missing is not None:
                yield decision.batch.batch_id, missing

    @property
    def _input(self) -> PastInput:
        return PastInput(self.runtime)

    def _stage(self, entry: Entry, coordinator: ActingCoordinator) -> Decision:
        """Stage a batch for the sink. Raises Refused unless it has as many rows as it was decided with."""
        before, started_ms = decision_in(entry), now_ms()
        files = {name: [file.path for file in files] for name, files in self._input.files(before).items()}
        rows = self.source.rows(self._input.ranges(before), files)
        staged = stage_batch(
            rows,
            sinks=[self.sink],
            generation=coordinator.generation,
            batch_id=before.batch.batch_id,
            row_digest=coordinator.summary.row_digest,
            previous=self._size,
            quarantine=self._member,
            taken={name: taken for name, taken in self.source.query.taken.items() if name == self.sink.name},
        )
        self._size = staged.size
        self._require_same(before, staged.rows_in)
        taken = self.source.query.taken.get(self.sink.name)
        return Decision(
            batch=before.batch,
            staged=staged.pieces,
            rows_in=staged.rows_in,
            schema=rows.schema.json(),
            stage_ms=now_ms() - started_ms,
            stage_requests=staged.requests,
            schemas={} if taken is None else {self.sink.name: taken.schema},
        )

    @property
    def _member(self) -> QuarantineMember | None:
        """The quarantine for rows that the sink cannot take, None unless it gets these.

        What else was put aside of a batch is there since it was decided.
        """
        member = self.runtime.quarantine
        if member is None or self.sink.name not in member.puts_aside:
            return None
        return replace(member, sources={}, puts_aside=frozenset({self.sink.name}))

    def _require_same(self, before: Decision, rows: int) -> None:
        batch_id, missing = before.batch.batch_id, self._input.missing(before)
        if missing is not None:
            raise Refused(
                f"Input of batch {batch_id} went away or changed while it was read: {missing}.",
                remedy="Put it back as it was, and start again: nothing of this batch was decided.",
            )
        if rows != before.rows_in:
            raise Refused(
                f"Batch {batch_id} was decided with {before.rows_in:,} rows, but the transform makes {rows:,} of this input now.",
                remedy="Put the transform and the rules (`expect`) back as they were then. If they were changed on purpose, give "
                "the sink another name and an empty place, and only the batches since: `penstock backfill FILE --sink NAME "
                "--from-batch N`. For all batches by the new transform run a second pipeline, with this sink and its own home.",
            )


def _ordered(settings: Any) -> str | None:
    """Return the setting of a sink by which a later row replaces an earlier one, or may do so; None if none does."""
    write = getattr(settings, "write", "append")
    if getattr(settings, "history", False) and settings.sequence_by is not None and settings.delete_when is None:
        return None  # every version is put in its place, whenever it comes
    if write != "append":
        return f"write: {write}"
    if isinstance(settings, PythonSink):
        return "of your own"
    return "delete_when" if getattr(settings, "delete_when", None) is not None else None


def _keeps_state(what: str) -> Refused:
    return Refused(
        f"{what}: what it made of an earlier batch depends on the state that it had then, which is not there any more.",
        remedy="Run a second pipeline with this sink and a home of its own, which reads the source from its beginning.",
    )


def _require_known(lacking: LackingBatches) -> None:
    """Raise Refused, with their number, if there are batches of which nothing tells any more what they read."""
    anew = "The sink has a part of what came before. Give it another name and an empty place. "
    begun = anew if lacking.begun else ""
    sink = "NAME" if lacking.begun else lacking.sink
    if lacking.earlier:
        raise Refused(
            f"{lacking.earlier} batches were read by earlier checkpoints, before this one was adopted, and cannot be read again.",
            remedy=f"{begun}Backfill what the present checkpoint read: `penstock backfill FILE --sink {sink} --from-batch 0`",
        )
    if lacking.unknown:
        oldest = lacking.first + lacking.unknown
        raise Refused(
            f"The ledger does not tell any more what batches {lacking.first} to {oldest - 1} read: {lacking.unknown} batches.",
            remedy=f"{begun}Backfill the batches that it still has: `penstock backfill FILE --sink {sink} --from-batch {oldest}`",
        )
