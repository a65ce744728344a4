"""`penstock quarantine replay`: delivers records of the quarantine after all, as the pipeline is now, each once.

The records are a batch of their own in the ledger. Its decision leaves a receipt of each in the quarantine, too. So a call that
was killed is finished by the next start of anything, and the same call again finds nothing left to do.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.commit.acts import ActingCoordinator
from penstock.commit.backfill import require_backfilled
from penstock.commit.publication import decision_in, replays_without
from penstock.core.bad_record import NAME
from penstock.core.dropped_rows import DroppedRows
from penstock.core.model import Decision, Generation, PipelineName, Position, SinkName, SourceName, Summary, Totals
from penstock.core.quarantined_record import QuarantinedRecord
from penstock.errors import Refused, Usage
from penstock.run.assembly import DeliveryPlan, assemble
from penstock.run.batch_query import BatchQuery
from penstock.run.continuation import require_continuation, require_sources
from penstock.run.operations import coordinating
from penstock.run.quarantined import file_names, quarantined_records
from penstock.run.replay_stager import ReplayStager, require_readable
from penstock.run.runtime import Runtime, opened_by_this_process, prepare
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.settings import nearest
from penstock.spec.sink import Memory, PythonSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPLACING = frozenset({"replace", "overwrite_partitions"})
_NOT_CHOSEN = "`penstock quarantine list FILE` shows the ids. To choose others: --batch N, --rows ID, --reason TEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which records to replay: those that meet all that is given, and all that were not replayed if nothing is.

    `batch` brought them; `ids` names them; `reason` is their rule or sink, `undecodable`, or a part of their error.
    """

    batch: int | None = None
    ids: tuple[str, ...] = ()
    reason: str | None = None

    def of(self, records: Iterable[QuarantinedRecord]) -> Sequence[QuarantinedRecord]:
        """Return the records to replay. Raises Usage for an id that no record has."""
        known = list(records)
        ids = {one.id for one in known}
        unknown = next((each for each in self.ids if each not in ids), None)
        if unknown is not None:
            guess = nearest(unknown, sorted(ids))
            raise Usage(
                f"The quarantine holds no record with the id {unknown!r}.",
                remedy=f"Did you mean {guess}? `penstock quarantine list FILE` shows the ids." if guess else _NOT_CHOSEN,
            )
        return [one for one in known if not one.replayed and self._has(one)]

    def _has(self, one: QuarantinedRecord) -> bool:
        if self.batch not in {None, one.batch} or (self.ids and one.id not in self.ids):
            return False
        return self.reason is None or one.has_reason(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay is to do, or did: `records` of the quarantine, by the source or the sink alone that they are given to.

    `waiting`: records that are not replayed, these included until it is `done`. `rows_out`: rows that the pipeline made of them.
    `totals`: what each sink was given; `dropped`: rows that rules dropped; `refused`: how many were put aside again.
    `recovered`: what an earlier call decided was published now. `outstanding`: that is still to be done. `generation` is None
    where the ledger got no entry. `warnings`: what to mind.
    """

    pipeline: PipelineName
    records: int
    waiting: int
    sources: Mapping[SourceName, int] = field(default_factory=dict)
    sinks: Mapping[SinkName, int] = field(default_factory=dict)
    rows_out: int = 0
    totals: Mapping[SinkName, Totals] = field(default_factory=dict)
    dropped: DroppedRows = field(default_factory=dict)
    refused: int = 0
    generation: Generation | None = None
    recovered: bool = False
    outstanding: bool = False
    done: bool = False
    warnings: tuple[str, ...] = ()


def replay(settings: PipelineSettings, plan: DeliveryPlan, spark: "SparkSession", *, choice: Choice, yes: bool) -> Replay:
    """Do what `Pipeline.replay` describes. Everything that can be refused is refused before the ledger gets an entry."""
    choice.of(quarantined_records(plan))
    query = BatchQuery.of(settings, plan, spark)
    with closing(assemble(query.plan)) as runtime:
        work = _Work(query=query, runtime=runtime, choice=choice)
        planned, _ = work.plan(work.summary())
        if not yes or not (planned.records or planned.outstanding):
            return replace(planned, done=yes)
        with coordinating(runtime) as coordinator:
            return work.run(coordinator)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    query: BatchQuery
    runtime: Runtime
    choice: Choice

    def summary(self) -> Summary:
        """Return the ledger's summary. Raises Refused if the pipeline cannot go on where the ledger ends."""
        tail = self.runtime.ledger.tail()
        summary = Summary() if tail is None else tail.summary
        require_continuation(summary, self.runtime.checkpoint)
        require_sources(self.runtime.ledger, self.runtime.checkpoint, self.runtime.sources, named=self.runtime.named_sources)
        return summary

    def plan(self, summary: Summary) -> "tuple[Replay, Sequence[QuarantinedRecord]]":
        """Return what is to be done, and the records. Raises Refused if they cannot be replayed."""
        found = quarantined_records(self.query.plan)
        records = self.choice.of(found)
        if records:
            self._require_fitting(summary, records)
            self._require_receipts(summary, records)
            require_readable(self.query, records)
        planned = Replay(
            pipeline=self.runtime.pipeline,
            records=len(records),
            waiting=sum(not one.replayed for one in found),
            sources=Counter(SourceName(one.source) for one in records if one.source is not None),
            sinks=Counter(SinkName(one.sink) for one in records if one.source is None and one.sink is not None),
            outstanding=summary.replaying_at is not None,
            warnings=tuple(self._warnings(records)),
        )
        return planned, records

    def run(self, coordinator: ActingCoordinator) -> Replay:
        """Fence, publish what is outstanding, and replay what is chosen then. Raises what a delivery raises."""
        prepare(self.runtime, schema=self.query.schema, taken=self.query.taken)
        opened = opened_by_this_process(self.runtime)
        recovered = coordinator.open(opened)  # I9
        planned, records = self.plan(coordinator.summary)  # I2: chosen when nobody else can replay them any more
        done = self._delivered(coordinator, planned, records) if records else planned
        coordinator.settle(opened)
        coordinator.sweep()  # I10
        recovered_now = any(not each.already for each in recovered.replay.values())
        generation = coordinator.generation
        return replace(done, done=True, recovered=recovered_now, outstanding=False, generation=generation)

    def _delivered(self, coordinator: ActingCoordinator, planned: Replay, records: Sequence[QuarantinedRecord]) -> Replay:
        stager = ReplayStager(query=self.query, runtime=self.runtime)
        newest = self.runtime.ledger.read(coordinator.summary.decided_at or Position(0))
        assert newest is not None
        decision = stager.stage(records, coordinator, batch=decision_in(newest).batch)
        coordinator.replay(decision, records=len(records))
        totals = {sink.name: decision.totals_of(sink.name) for sink in self.runtime.row_sinks if decision.of_sink(sink.name)}
        return replace(
            planned,
            waiting=planned.waiting - len(records) + _refused(decision, records),
            rows_out=decision.rows_in,
            totals=totals,
            dropped=decision.dropped,
            refused=_refused(decision, records),
        )

    def _require_fitting(self, summary: Summary, records: Sequence[QuarantinedRecord]) -> None:
        if summary.continued_from is None:
            raise Refused(
                f"The pipeline {self.runtime.pipeline!r} has delivered nothing of its present checkpoint yet.",
                remedy="`penstock run FILE` delivers a batch; replay the records then.",
            )
        require_backfilled(summary, self.runtime.sinks)
        ahead = next((sink.name for sink in self.runtime.sinks if sink.name in summary.ahead), None)
        if ahead is not None:
            raise Refused(
                f"Sink {ahead!r} kept batches when the pipeline was rewound, and others lack them still.",
                remedy="`penstock run FILE` delivers these batches again; replay the records then.",
            )
        unplaced = sum(one.key_text is None for one in records)
        if unplaced:
            raise Refused(
                f"{unplaced} of the records lie in files that tell no batch: something else wrote these files, and whether the "
                "records were replayed is not known.",
                remedy="Put the files of Penstock back, or name the records to replay by --batch or --rows.",
            )
        self._require_stateless(records)
        self._require_sinks(records)

    def _require_receipts(self, summary: Summary, records: Sequence[QuarantinedRecord]) -> None:
        """Raise Refused if files are gone that can tell that one of `records` was replayed: it would come twice (I2)."""
        there = file_names(self.query.plan)
        for entry in replays_without(self.runtime.ledger, summary, sink=NAME, present=there):
            older = sum(one.generation is None or one.generation < entry.generation for one in records)
            if older:
                gone = next(each.name for each in decision_in(entry).of_sink(NAME) if each.name not in there)
                raise Refused(
                    f"The quarantine lacks {gone}, which tells the records that were replayed at position {entry.position} of "
                    f"the ledger: whether {older} of the {len(records)} records were replayed then is not known.",
                    remedy="Put the file back. Or choose records that later batches brought, by --batch.",
                )

    def _require_stateless(self, records: Sequence[QuarantinedRecord]) -> None:
        """Raise Refused if records would have to pass an operator that keeps state."""
        of_sources = sum(one.source is not None for one in records)
        state = self.query.state or ("an operator, by its checkpoint" if self.runtime.checkpoint.has_state() else None)
        if of_sources and state is not None:
            raise Refused(
                f"The query keeps state ({state}), and {of_sources} of the {len(records)} records would have to pass it: the "
                "state of the running query is Spark's, and no replay changes it.",
                remedy="Correct the records and put them into the source. Rows that a sink could not take can be replayed: "
                "`penstock quarantine replay FILE --reason SINK`",
            )

    def _require_sinks(self, records: Sequence[QuarantinedRecord]) -> None:
        given = self.query.settings.sinks
        unknown = next((one for one in records if one.source is None and one.sink not in given), None)
        gone = next((one for one in records if one.source is not None and one.source not in self.query.settings.sources), None)
        if unknown is not None or gone is not None:
            what = f"sink {unknown.sink!r}" if unknown is not None else f"source {gone.source!r}" if gone is not None else ""
            raise Refused(
                f"Records were put aside for {what}, which the pipeline does not have any more.",
                remedy="Give it its name back, or choose other records by --batch, --rows or --reason.",
            )
        for name in self._sinks_of(records):
            write = getattr(given[name], "write", "append")
            if write in _REPLACING:
                raise Refused(
                    f"Sink {name!r} has `write: {write}`: the replayed rows would take the place of others.",
                    remedy="Correct the records and put them into the source.",
                )
            if isinstance(given[name], Memory):
                raise Refused(
                    f"Sink {name!r} is of type memory, which only its driver's process fills.",
                    remedy="Take it out of the file for the replay.",
                )

    def _sinks_of(self, records: Sequence[QuarantinedRecord]) -> Sequence[str]:
        """Return the sinks that are given rows: all of them if a record goes through the pipeline."""
        if any(one.source is not None for one in records):
            return tuple(self.query.settings.sinks)
        return tuple(dict.fromkeys(one.sink for one in records if one.sink is not None))

    def _warnings(self, records: Sequence[QuarantinedRecord]) -> Iterator[str]:
        for name in self._sinks_of(records) if records else ():
            warning = out_of_order_warning(name, self.query.settings.sinks.get(name))
            if warning is not None:
                yield warning


def out_of_order_warning(name: str, settings: object) -> str | None:
    """Return what to mind where rows that come behind newer ones change what sink `name` shows, None if they do not."""
    write, deletes = getattr(settings, "write", "append"), getattr(settings, "delete_when", None)
    sequence = getattr(settings, "sequence_by", None)
    if write == "merge" or isinstance(settings, PythonSink):
        return f"Sink {name} gets the rows as a batch behind all others, and must know what an older row means."
    if getattr(settings, "history", False) and sequence is None:
        return f"Sink {name}: a replayed row becomes the current version of its key. With `sequence_by` it takes its place."
    if getattr(settings, "history", False) and deletes is not None:
        return f"Sink {name}: a replayed row stays open if its key was deleted since and was not there: that left no trace."
    if (write == "upsert" or deletes is not None) and sequence is None:
        return f"Sink {name}: a replayed row replaces a newer one of its key. With `sequence_by` it would not."
    return None


def _refused(decision: Decision, records: Sequence[QuarantinedRecord]) -> int:
    """Return how many records or rows the replay put aside: what it wrote into the quarantine, but for the receipts."""
    return decision.totals_of(NAME).rows - len(records)
