"""Makes the lost checkpoint of a query with state again: from a savepoint, and by Spark, which computes what came after it.

Spark runs on a copy of the savepoint's checkpoint, inside the lost one. Each decided batch behind the savepoint gets its plan,
one start that ends with it (`Trigger.Once`), and a function for its rows that writes nothing. What Spark has then made takes
the place of the lost checkpoint by one act, as for a query without state.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.checkpoint import savepoint as saved
from penstock.checkpoint.act import Act
from penstock.checkpoint.catching_up import COPY, CatchUp, act_of
from penstock.checkpoint.entries import parse_offsets
from penstock.checkpoint.savepoint import Below, Savepoint
from penstock.commit.outcome import Delivered
from penstock.commit.publication import decision_in
from penstock.core.faults import FaultPoint
from penstock.core.kafka_offset import without_notes
from penstock.core.model import BatchId, Decision, Entry, Generation, Published, SourceName
from penstock.errors import InputChanged, InputLost, Refused, SourcesChanged
from penstock.observe.batch_record import SparkRecord, records_of
from penstock.run.assembly import DeliveryPlan, assemble, checkpoint_of
from penstock.run.batch_stager import BatchStager
from penstock.run.failure import Undelivered, error_from_query
from penstock.run.past_input import PastInput
from penstock.run.preflight.description import RunDescription, describe, recorded_run
from penstock.run.query import start_streaming
from penstock.run.rebuilding import compact_interval, decided_entries, lists_of, lost_at, order_then
from penstock.run.runtime import Runtime
from penstock.run.same_state import differences, read_beside, require_repeatable
from penstock.run.savepoints import foreign, place_of
from penstock.run.start import frame_of
from penstock.source.kafka.decode import decode_passes
from penstock.source.naming import require_nameable
from penstock.spec.pipeline import PipelineSettings, with_rules
from penstock.transform.apply import travel_by_value
from penstock.transform.guarantee import stateful_operators
from penstock.transform.plan import plan_of, source_order
from penstock.transform.state_held import StateHeld, state_held

if TYPE_CHECKING:
    from penstock.checkpoint.files import Files
    from penstock.run.pipeline import Pipeline

_COPY = FaultPoint("rebuild.copy", "copy a savepoint's checkpoint, in which Spark computes what came after it")
_COMPUTE = FaultPoint("rebuild.compute", "have Spark compute a decided batch once more for its state")
_REMOVE = FaultPoint("rebuild.remove", "remove the copy in which Spark computed")

_OTHERWISE = "Go back to a savepoint: `penstock savepoint restore`; or put the checkpoint back from a copy."


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceSavepoint:
    """A savepoint and the entries of the decisions behind it, oldest first, the newest of the query last."""

    savepoint: Savepoint
    entries: Sequence[Entry]

    @property
    def first(self) -> BatchId:
        return BatchId(self.savepoint.point.batch_id)

    @property
    def last(self) -> BatchId:
        return decision_in(self.entries[-1]).batch.batch_id if self.entries else self.first

    def decisions(self) -> Iterator[Decision]:
        yield from map(decision_in, self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRebuilding:
    """One pipeline whose query keeps state: what making its checkpoint again means, and doing it."""

    settings: PipelineSettings
    plan: DeliveryPlan
    frame: DataFrame
    order: Sequence[SourceName]
    state: tuple[StateHeld, ...]
    beside: Sequence[str]
    place: "Files"

    @classmethod
    def of(
        cls, pipeline: "Pipeline", spark: SparkSession, *, to: str | None, options: Mapping[str, str] | None
    ) -> "tuple[Sequence[SourceName], StateRebuilding | None]":
        """Return the sources in the order of the plan, one name for each place, and this for a query that keeps state.

        Raises Refused where what the state becomes depends on when a batch is computed, or on chance.
        """
        settings, plan = pipeline.settings, pipeline.plan
        decoding = decode_passes(spark, settings.sources)
        frame, sources = frame_of(settings, spark, modules=plan.modules, decoding=decoding)
        query = plan_of(frame)
        order = source_order(query, tuple(sources))
        if settings.named_sources:
            require_nameable(order, settings.sources)
        if not stateful_operators(query):
            return order, None
        require_repeatable(query, remedy=_OTHERWISE)
        schemas = {SourceName(name): sources[SourceName(name)].schema.json() for name in with_rules(settings)}
        of_frame = replace(plan, sources=tuple(dict.fromkeys(order)), decoding=decoding, source_schemas=schemas)
        return order, cls(
            settings=settings,
            plan=of_frame,
            frame=frame,
            order=order,
            state=state_held(query),
            beside=read_beside(query),
            place=place_of(plan, to=to, options=options),
        )

    def shown(self, runtime: Runtime) -> Act:
        """Return the act for people. Spark computes nothing yet, and the input is not looked for."""
        behind = self._behind(runtime)
        made = Below(self.place, f"{behind.savepoint.name}/checkpoint")
        act = act_of(runtime.checkpoint.files, made, savepoint=behind.savepoint.name, newest=behind.first, planned=behind.last)
        return replace(act, notes=tuple(self._notes(runtime, behind)))

    def done(self, runtime: Runtime) -> Act:
        """Have Spark compute the batches behind the newest savepoint, and return the act that puts the result in place.

        Raises Refused, InputChanged, InputLost, SourcesChanged, CheckpointDamaged, Failed, Retryable.
        """
        behind = self._behind(runtime)
        checkpoint = self.settings.checkpoint
        own = checkpoint.model_copy(update={"url": f"{checkpoint.url.rstrip('/')}/{COPY}"})
        plan = replace(self.plan, settings=self.settings.model_copy(update={"checkpoint": own}))
        catch_up = CatchUp(checkpoint_of(plan).files, order=self._order_of(behind), named=self.settings.named_sources)
        try:
            self._catch_up(catch_up, runtime, plan, behind)
            act = catch_up.act(runtime.checkpoint.files, savepoint=behind.savepoint.name, batch_id=behind.last)
            return replace(act, notes=tuple(self._unknown(runtime, behind)))
        finally:
            with _REMOVE.around():
                catch_up.remove()  # the act holds all of it, and keeps it on disk before it changes anything

    def _catch_up(self, catch_up: CatchUp, runtime: Runtime, plan: DeliveryPlan, behind: SinceSavepoint) -> None:
        with _COPY.around():
            catch_up.begin(
                Below(self.place, f"{behind.savepoint.name}/checkpoint"),
                lists_of(runtime.ledger, self.settings, self._order_of(behind), after=behind.first),
                compact_interval=compact_interval(self.settings),
            )
        with closing(assemble(plan, demanded=False)) as computing:
            _require_input(computing, behind)
            watermarks = watermarks_of(self.settings.home, behind.entries)
            for entry in behind.entries:
                decision = decision_in(entry)
                watermark_ms = watermarks.get(decision.batch.batch_id)
                catch_up.plan(decision.batch, decided_at_ms=entry.written_at_ms, watermark_ms=watermark_ms)
                with _COMPUTE.around():
                    self._compute(computing, plan, decision)
                catch_up.require_committed(decision.batch.batch_id)

    def _compute(self, runtime: Runtime, plan: DeliveryPlan, decision: Decision) -> None:
        """Run one planned batch to its commit in the copy. Raises InputChanged if it has other rows than were delivered."""
        batch_id = decision.batch.batch_id
        stager, failures = BatchStager(runtime, None, pause=_never), list[BaseException]()
        sinks = {sink.name: Published(totals=decision.totals_of(sink.name), already=True) for sink in runtime.sinks}
        delivered = Delivered(batch=decision.batch, rows_in=decision.rows_in, already=True, sinks=sinks, dropped=decision.dropped)

        def compute(rows: DataFrame, running: int) -> None:
            try:
                counted = Observation()
                stager.compute_state(rows.observe(counted, F.count(F.lit(1)).alias("rows")), delivered)
                _require_same_rows(decision, running, counted.get["rows"])
            except BaseException as cause:  # noqa: BLE001 - raised again below; Spark would wrap it in its own
                failures.append(cause)
                raise Undelivered(type(cause).__name__) from None

        name = f"{self.settings.pipeline}: batch {batch_id} for its state"
        writer = self.frame.writeStream.queryName(name).outputMode(self.settings.output_mode).trigger(once=True)
        query = start_streaming(writer.foreachBatch(compute), plan)
        try:
            query.awaitTermination()
        except Exception as error:
            if failures:
                raise failures[0] from None
            raise error_from_query(str(error), checkpoint=runtime.checkpoint) from error

    def _order_of(self, behind: SinceSavepoint) -> Sequence[SourceName]:
        newest = behind.entries[-1:] and decision_in(behind.entries[-1]).batch
        return order_then(self.order, newest, named=self.settings.named_sources) if newest else self.order

    def _behind(self, runtime: Runtime) -> SinceSavepoint:
        """Return the newest whole savepoint that the ledger goes on from, with what came after. Raises Refused."""
        newest = lost_at(runtime)
        savepoint = self._newest_savepoint(runtime, newest)
        entries = list[Entry]()
        for entry in decided_entries(runtime.ledger):
            if decision_in(entry).batch.batch_id <= savepoint.point.batch_id:
                break
            entries.append(entry)
        behind = SinceSavepoint(savepoint=savepoint, entries=entries[::-1])
        require_adjoining(behind, decision_in(newest).batch.batch_id, ends=self._ends_of(savepoint))
        travel_by_value()
        self._require_same_query(behind, runtime)
        return behind

    def _newest_savepoint(self, runtime: Runtime, newest: Entry) -> Savepoint:
        usable = [
            one
            for one in saved.savepoints_in(self.place)
            if foreign(one, runtime.ledger) is None and one.point.query_id == decision_in(newest).batch.query_id
        ]
        usable.sort(key=lambda one: (one.point.batch_id, one.created_at_ms), reverse=True)
        whole = (one for one in usable if next(saved.problems(self.place, one), None) is None)
        if (newest_whole := next(whole, None)) is not None:
            return newest_whole
        if usable:
            saved.require_whole(self.place, usable[0])
        raise Refused(
            f"The query keeps state ({', '.join(held.kind for held in self.state)}), which the ledger does not hold, and "
            f"{self.place.location} has no savepoint of this query to begin with.",
            remedy="Name the place of the savepoints with --to; or put the checkpoint back from a copy.",
        )

    def _ends_of(self, savepoint: Savepoint) -> dict[SourceName, str | None]:
        """Return the offsets with which a savepoint ends, by source."""
        place = f"{savepoint.name}/checkpoint/offsets/{savepoint.point.batch_id}"
        entry = parse_offsets(self.place.read(place) or b"")
        if entry.named:
            return {SourceName(key): offset for key, offset in entry.offsets.items()}
        return dict(zip(self.order, entry.by_key().values(), strict=False))

    def _require_same_query(self, behind: SinceSavepoint, runtime: Runtime) -> None:
        """Raise Refused if a run that decided one of the batches computed them in another way than the file does now."""
        now = describe(self.settings, modules=self.plan.modules, versions={}, state=self.state)
        known = [then for then in self._runs(runtime, behind).values() if then is not None]
        for then in known:
            other = differences(then, now, sources=self.order)
            if other or then.state not in {None, now.state}:
                is_one = all(one.state == then.state and not differences(then, one, sources=self.order) for one in known)
                back = "Put it back as it was, run the command again, and then change it."
                raise Refused(
                    f"Batches behind savepoint {behind.savepoint.name!r} were computed by another query than the file has now: "
                    f"{', '.join(other) or 'state'} differs, so their state would be another one.",
                    remedy=back if is_one else f"They were not all computed by the same query. {_OTHERWISE}",
                )

    def _runs(self, runtime: Runtime, behind: SinceSavepoint) -> Mapping[Generation, RunDescription | None]:
        """Return what is known of the runs that decided the batches."""
        tail = runtime.ledger.tail()
        ledger_id = None if tail is None else tail.summary.ledger_id
        generations = dict.fromkeys(entry.generation for entry in behind.entries)
        return {one: recorded_run(self.settings.home, one, ledger_id=ledger_id) for one in generations}

    def _unknown(self, runtime: Runtime, behind: SinceSavepoint) -> Iterator[str]:
        """Yield what the state also depends on, and nobody can compare."""
        if not behind.entries:
            return
        runs = self._runs(runtime, behind)
        batches = [decision_in(entry).batch.batch_id for entry in behind.entries if runs[entry.generation] is None]
        if batches:
            yield (
                f"What query computed {len(batches)} of these batches, from batch {batches[0]} on, is not known any more: only "
                "the number of their rows tells that it was this one."
            )
        for one in self.beside:
            yield f"The query reads {one} beside its streams: it must hold what it held then."

    def _notes(self, runtime: Runtime, behind: SinceSavepoint) -> Iterator[str]:
        if not behind.entries:
            return
        batch = decision_in(behind.entries[-1]).batch
        files = lists_of(runtime.ledger, self.settings, self._order_of(behind), after=behind.first)
        for each in batch.offsets:
            read = sum(map(len, files.get(each.source, {}).values()))
            again = f"{read} files are" if each.source in files else f"input up to {each.end} is"
            yield f"{each.source}: {again} read once more, and delivered no more."
        yield from self._unknown(runtime, behind)


def watermarks_of(home: str, entries: Sequence[Entry]) -> Mapping[BatchId, int]:
    """Return the watermarks that the batches of decisions had, as far as their drivers noted them."""
    decided = {decision_in(entry).batch.batch_id: entry.generation for entry in entries}
    found = dict[BatchId, int]()
    for each in records_of(home, decided):  # what an older run noted was taken back
        if isinstance(each, SparkRecord) and each.watermark and each.generation >= decided[each.batch_id]:
            with suppress(ValueError):
                at = datetime.fromisoformat(each.watermark.replace("Z", "+00:00"))
                found[each.batch_id] = round(at.timestamp() * 1000)
    return found


def require_adjoining(behind: SinceSavepoint, newest: BatchId, *, ends: dict[SourceName, str | None]) -> None:
    """Raise Refused unless the ledger holds every decision behind the savepoint, each from where the one before ended.

    `ends`: where the savepoint's own batch ended.
    """
    found = [decision_in(entry).batch.batch_id for entry in behind.entries]
    if found != list(range(behind.first + 1, newest + 1)):
        raise Refused(
            f"The ledger does not hold every decision behind batch {behind.first} of savepoint {behind.savepoint.name!r}, up to "
            f"batch {newest}.",
            remedy=_OTHERWISE,
        )
    for decision in behind.decisions():
        for each in decision.batch.offsets:
            before = ends.get(each.source)
            if before is not None and without_notes(each.start) != without_notes(before):
                raise Refused(
                    f"Batch {decision.batch.batch_id} does not begin where the one before ended in source {each.source}: records "
                    "in between were gone, and Spark would look for them.",
                    remedy=_OTHERWISE,
                )
            ends[each.source] = each.end


def _require_input(runtime: Runtime, behind: SinceSavepoint) -> None:
    """Raise InputLost if a source no longer has what a batch read."""
    past = PastInput(runtime)
    for decision in behind.decisions():
        missing = past.missing(decision)
        if missing is not None:
            raise InputLost(
                f"Spark cannot compute batch {decision.batch.batch_id} once more for its state: {missing}.",
                remedy="Put the input back as it was, files with their times, and run the command again; or put the checkpoint "
                "back from a copy. Going back to a savepoint needs that input, too.",
            )


def _require_same_rows(decision: Decision, running: int, rows: int) -> None:
    batch_id = decision.batch.batch_id
    if running != batch_id:
        raise SourcesChanged(f"Spark ran batch {running}, expected batch {batch_id}.", remedy="Run the command again.")
    if rows != decision.rows_in:
        raise InputChanged(
            f"Batch {batch_id} was decided with {decision.rows_in} rows, and the query makes {rows} of the same input now.",
            remedy=f"Put the transform back as it was then, and run the command again. Does it not differ? {_OTHERWISE}",
        )


def _never(_: float) -> None:
    raise AssertionError("nothing is staged")
