"""A delivery that runs: one generation of one pipeline in this process, fed by Spark one micro-batch at a time."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from penstock.checkpoint.repair import remove_unwritten_start
from penstock.commit.backfill import require_joinable
from penstock.commit.outcome import Delivered, Recovered, StagedBatch
from penstock.commit.publication import sinks_apart
from penstock.commit.rewind import require_rewound
from penstock.core.model import Adopted, Batch, BatchId, Generation, Guarantee, Nonce, SinkName, SourceName, Summary
from penstock.core.topics import TopicRead
from penstock.errors import CheckpointReplaced, Fenced, InputLost, PenstockError, Refused, Retryable
from penstock.observe.batch_record import BatchRecords
from penstock.observe.export.observation import Observation
from penstock.observe.progress import BatchProgress, RunSummary, SinkProgress, describe, sink_progress
from penstock.protocols import ALL_ROWS, Sink, Taken
from penstock.run.batch_stager import BatchStager
from penstock.run.connect import require_left
from penstock.run.continuation import Adoption, plan_adoption, require_continuation, require_sources, with_way_out
from penstock.run.failure import StopRequested
from penstock.run.kafka_input import KafkaInput, Mirrors
from penstock.run.measuring import PublicationTimes, record_of
from penstock.run.query_facts import observed_counts, running_query
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare
from penstock.source.kafka.gaps import gap_descriptions
from penstock.source.unfit_rows import unfit_warnings

_log = logging.getLogger(__name__)

Observer = Callable[[BatchProgress], None]
_LOOK_S = 0.2
"""Seconds between two looks of a pause whether a stop is wanted."""


class Publisher:
    """A coordinator's `DeferredPublish` that runs one publication at a time in a thread of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-behind")
        self._newest: Future[None] | None = None

    def __call__(self, publish: Callable[[], None]) -> Callable[[], None]:
        """Start `publish`. Return a function that waits for its end and raises what it raised."""
        self._newest = self._threads.submit(publish)
        return self._newest.result

    def failure(self) -> BaseException | None:
        """Return what the newest publication raised, None if it has not ended or did not fail. Does not wait."""
        newest = self._newest
        return newest.exception() if newest is not None and newest.done() else None

    def is_done_within(self, seconds: float | None) -> bool:
        """Return whether nothing is published any more after at most `seconds` (None: no limit)."""
        return self._newest is None or not wait([self._newest], seconds).not_done

    def close(self) -> None:
        """Wait for the end of a running publication, whatever its outcome."""
        self._threads.shutdown()


@dataclass(slots=True)
class _BatchRecord:
    """A batch in delivery: the path of its rows, what it read, and its delivery if it was decided before."""

    path: str = "none"
    rows_read: int | None = None
    reads: tuple[TopicRead, ...] = ()
    before: Delivered | None = None
    warnings: tuple[str, ...] = ()


class OpenDelivery:
    """One open generation, made by `Delivery.open`. It ends with the first exception: recovery is the next start.

    Spark's stream thread calls `deliver`, the thread that started the query calls everything else. After `batches` new batches
    `limit_reached` is set, and every further batch is dropped. With `behind` a batch is published while Spark computes the next.
    `stop_wanted` may be called by any thread: once it returns true, or after `drain`, what was tried twice is not tried again.
    `records`: where to note what was measured of each batch; None for nowhere. `observation`: whom to tell of the run.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        observers: Sequence[Observer] = (),
        batches: int | None = None,
        behind: bool = False,
        stop_wanted: Callable[[], bool] = bool,
        records: BatchRecords | None = None,
        observation: Observation | None = None,
    ) -> None:
        self._runtime, self._records = runtime, records
        self._observation = observation or Observation()
        self._times = PublicationTimes()
        self._observers = tuple(observers)
        self._publisher = Publisher()
        self._stopping, self._stop_wanted = threading.Event(), stop_wanted
        self.coordinator = coordinator_of(
            runtime,
            deferred=self._publisher if behind else None,
            prepare_joined=self._prepare_joined,
            sleep=self._pause_tries,
            stop_wanted=self._is_stopping,
            timed=self._times,
        )
        self._kafka = (
            None
            if runtime.watch is None
            else KafkaInput(runtime.watch, ledger=runtime.ledger, checkpoint=runtime.checkpoint, names=runtime.source_names)
        )
        self._stager = BatchStager(runtime, self._kafka, pause=self._pause)
        self._mirrors = Mirrors({} if runtime.watch is None else runtime.watch.sources)
        self._idle, self._drain = threading.Event(), threading.Event()
        self._idle.set()
        self._unprepared = frozenset[SinkName]()
        self._given: tuple[str | None, Mapping[SinkName, Taken]] = (None, ALL_ROWS)
        self.delivering: BatchId | None = None
        self._limit = batches
        self.limit_reached = threading.Event()
        self.summary = RunSummary(pipeline=runtime.pipeline, sinks={sink.name: SinkProgress() for sink in runtime.sinks})

    def newest_entry(self) -> Nonce | None:
        """Return the nonce of the ledger's newest entry: once this is open, its own entry or a newer run's."""
        tail = self._runtime.ledger.tail()
        return None if tail is None else tail.nonce

    def open(self, *, schema: str | None, taken: Mapping[SinkName, Taken] = ALL_ROWS) -> None:
        """Refuse a wrong checkpoint, prove the ledger, prepare the sinks, fence, and publish what was decided.

        `taken`: what each sink takes of rows of that schema.
        """
        require_left(self._runtime.ledger, self._runtime.left)
        tail = self._runtime.ledger.tail()
        summary = Summary() if tail is None else tail.summary
        require_rewound(summary, self._runtime.ledger)
        require_joinable(summary, self._sink_names)
        adoption = self._require_continuation(summary)
        if self._kafka is not None:
            self._kafka.require(summary)
        planned_before = self._runtime.checkpoint.latest_offsets_id()
        self._unprepared, self._given = prepare(self._runtime, schema=schema, taken=taken), (schema, taken)
        recovered = self.coordinator.open(opened_by_this_process(self._runtime))
        require_joinable(recovered.summary, self._sink_names)  # one that was alive may have begun meanwhile
        self._join_sinks()
        self._observation.opened(self.coordinator.generation, self.coordinator.summary.totals)
        if planned_before is None:
            remove_unwritten_start(self._runtime.checkpoint)
        if adoption is not None:
            reason = "the pipeline demands at_least_once only"
            self.coordinator.adopt(adoption.recorded(reason=reason, operator="penstock"))
        if self._kafka is not None:
            self._skip_accepted_gaps(self._kafka)
        self._release_committed()
        self._stager.begin(planned_before=planned_before, recovered=recovered, taken=taken)
        self._report_recovered(recovered)

    def deliver(self, rows: DataFrame, batch_id: BatchId) -> None:
        """Deliver one micro-batch exactly once. Raises StopRequested instead after `drain`, or when the limit is reached."""
        if self._drain.is_set() or self.limit_reached.is_set():
            raise StopRequested
        self.delivering = batch_id
        self._idle.clear()
        try:
            self._require_own_checkpoint(rows, batch_id)
            self._runtime.publish_by(rows.sparkSession)
            batch = self._runtime.checkpoint.batch(batch_id, self._runtime.source_names(batch_id))
            record = _BatchRecord()

            def stage(generation: Generation) -> StagedBatch:
                summary = self.coordinator.summary
                without = sinks_apart(summary)
                staged = self._stager.stage(rows, batch, generation=generation, row_digest=summary.row_digest, without=without)
                record.path, record.rows_read = staged.path, staged.rows_read
                record.warnings = tuple(unfit_warnings(observed_counts(rows)))
                record.reads = () if self._kafka is None else self._kafka.delivered()
                return staged.batch

            self.coordinator.begin(batch, stage, on_delivered=lambda delivered: self._delivered(delivered, record))
            if self._limit is not None:
                self.coordinator.wait()
            if record.before is not None:
                self._finish_replay(rows, record.before)
        finally:
            self.delivering = None
            self._idle.set()

    @property
    def _sink_names(self) -> Sequence[SinkName]:
        return [sink.name for sink in self._runtime.sinks]

    def _join_sinks(self) -> None:
        """Have sinks take part that are apart and were given every batch before. Called before the first batch is decided."""
        backfills = self.coordinator.summary.backfills
        for sink in self._runtime.sinks:
            progress = backfills.get(sink.name)
            if progress is not None and progress.apart and progress.is_level:
                self._prepare_joined(sink)
                self.coordinator.join(sink)
            elif progress is not None and progress.apart:
                _log.warning(
                    "Pipeline %s runs without sink %s until `penstock backfill FILE --sink %s` has given it the batches before.",
                    self._runtime.pipeline,
                    sink.name,
                    sink.name,
                )

    def _prepare_joined(self, sink: Sink) -> None:
        """Prepare a sink that was apart when this was opened: until now another process may have published there."""
        if sink.name in self._unprepared:
            schema, taken = self._given
            prepare(replace(self._runtime, sinks=(sink,)), schema=schema, taken=taken, apart=sink.name)
            self._unprepared -= {sink.name}

    def _delivered(self, delivered: Delivered, record: _BatchRecord) -> None:
        """Called when the batch is published, in this thread or the publisher's."""
        if delivered.already:
            record.before = delivered
        else:
            self._report_delivered(delivered, record)

    def _finish_replay(self, rows: DataFrame, delivered: Delivered) -> None:
        """Finish a batch that was decided before: compute its state, if the query keeps any, and write nothing."""
        if self._runtime.checkpoint.has_state():
            self._stager.compute_state(rows, delivered)
        self._report_delivered(delivered, _BatchRecord(reads=() if self._kafka is None else self._kafka.delivered()))

    def diagnose(self, error: PenstockError) -> PenstockError:
        """Return `error`, or Fenced if a newer run exists, or InputLost: two drivers may also collide in Spark's checkpoint."""
        try:
            self.coordinator.require_newest()
        except Fenced as fenced:
            return fenced
        except PenstockError:  # a ledger that cannot be read tells nothing
            return error
        try:
            if self._kafka is not None:
                self._kafka.require(self.coordinator.summary)
        except InputLost as lost:  # not looked for in Spark's message, which differs from case to case
            return lost
        except PenstockError:  # brokers that do not answer tell nothing
            pass
        if not isinstance(error, Fenced):
            return with_way_out(error, self.coordinator.summary, self._runtime.checkpoint)
        return Retryable(
            f"Something that Spark was about to write is in the checkpoint {self._runtime.checkpoint.location} already: an older "
            "run wrote there at the same time, and is fenced now; or an entry was removed, and not its checksum.",
            remedy="Start again: nothing was lost. If it ends so again, `penstock checkpoint repair` removes such checksums.",
        )

    def drain(self, *, grace_s: float) -> bool:
        """Let the current batch end, for at most `grace_s` seconds, and start no other. Return whether it ended.

        A sink or ledger that does not answer ends it soon: what was tried twice is not tried again.
        """
        self._stopping.set()
        self._drain.set()
        return self._idle.wait(grace_s)

    def is_published_within(self, seconds: float | None) -> bool:
        """Wait until nothing is being published, at most `seconds` (None: without limit). Return whether nothing is."""
        return self._publisher.is_done_within(seconds)

    def failure(self) -> BaseException | None:
        """Return what a publication beside the query raised, None if nothing. The next batch would raise it, if there is one."""
        return self._publisher.failure()

    def close(self) -> None:
        """End after a query that ended well: publish what it decided, sweep, release files and connections."""
        self._drain.set()
        try:
            self.coordinator.wait()
            self.coordinator.sweep()
        finally:
            self.release()

    def release(self) -> None:
        """Release files and connections, and leave everything else to the next start: nothing is tried again any more."""
        self._stopping.set()
        self._publisher.close()
        self._mirrors.close()
        self._runtime.close()

    def _skip_accepted_gaps(self, kafka: KafkaInput) -> None:
        """Move the checkpoint behind accepted gaps, and record them in the ledger. Only after the fence: the newest run may."""
        summary = self.coordinator.summary
        gaps = kafka.skip_gaps(summary, require_newest=self.coordinator.require_newest)
        if gaps and summary.next_batch_id is not None:
            reason = f"on_gap: accept: {gap_descriptions(gaps)}"
            self.coordinator.adopt(
                Adopted(
                    query_id=summary.query_id, next_batch_id=summary.next_batch_id, reason=reason, operator="penstock", gaps=gaps
                )
            )

    def _release(self, batch: Batch) -> tuple[str, ...]:
        """Release in the journals what came before a published batch; Spark may read the batch itself again. Return warnings."""
        return self._released({each.source: each.start for each in batch.offsets})

    def _released(self, offsets: Mapping[SourceName, str | None]) -> tuple[str, ...]:
        """Release what came before `offsets`. A run that slept releases nothing: a rewind may need it once more."""
        if self._runtime.journals is None:
            return ()
        try:
            self.coordinator.require_newest()
        except PenstockError as error:
            return (f"Nothing is released in the journals: {error.message}",)
        return self._runtime.journals.release(offsets)

    def _release_committed(self) -> None:
        """Release the newest batch, too, if Spark's commit log has it and it is published: it is not read again."""
        checkpoint, expected = self._runtime.checkpoint, self.coordinator.summary.next_batch_id
        committed = checkpoint.latest_commit_id()
        if self._runtime.journals is None or committed is None or expected is None:
            return
        if committed == expected - 1 == checkpoint.latest_offsets_id():
            batch = checkpoint.batch(committed, self._runtime.source_names(committed))
            self._released({each.source: each.end for each in batch.offsets})

    def _is_stopping(self) -> bool:
        return self._stopping.is_set() or self._stop_wanted()

    def _pause_tries(self, seconds: float) -> None:
        """Wait between two tries of an append or a publication, at most `seconds`: a stop ends the pause."""
        end_s = time.monotonic() + seconds
        while not self._is_stopping() and (left_s := end_s - time.monotonic()) > 0:
            self._stopping.wait(min(left_s, _LOOK_S))

    def _pause(self, seconds: float) -> None:
        """Let a batch wait for its source, at most `seconds`. Raises StopRequested once `drain` is called, Fenced."""
        if self._drain.wait(seconds):
            raise StopRequested
        self.coordinator.require_newest()

    def _require_own_checkpoint(self, rows: DataFrame, batch_id: BatchId) -> None:
        """Raise CheckpointReplaced if Spark keeps this query in another directory: then nothing here says what a batch is.

        Where Spark does not say which query runs, its batch must at least be the one that is planned here and not committed.
        """
        running = running_query(rows)
        checkpoint = self._runtime.checkpoint
        if running is None:
            committed = checkpoint.latest_commit_id()
            is_own = checkpoint.latest_offsets_id() == batch_id and (committed is None or committed < batch_id)
        else:
            is_own = running == checkpoint.query_id()
        if is_own or self._runtime.demanded is not Guarantee.EXACTLY_ONCE:
            return
        raise CheckpointReplaced(
            f"Spark runs batch {batch_id} of a query that does not use the checkpoint {checkpoint.location}: "
            "it keeps this query in another directory.",
            remedy='Give the writer `.option("checkpointLocation", delivery.checkpoint)`, or start it by `delivery.start`.',
        )

    def _require_continuation(self, summary: Summary) -> Adoption | None:
        """Refuse a checkpoint that does not continue the ledger; if at-least-once is demanded, return its adoption instead."""
        try:
            require_continuation(summary, self._runtime.checkpoint)
            runtime = self._runtime
            require_sources(runtime.ledger, runtime.checkpoint, runtime.sources, named=runtime.named_sources)
        except Refused:
            if self._runtime.demanded is Guarantee.EXACTLY_ONCE:
                raise
            return plan_adoption(self._runtime, summary)
        return None

    def _report_delivered(self, delivered: Delivered, record: _BatchRecord) -> None:
        warnings = (*record.warnings, *delivered.warnings, *self._mirrors.show(record.reads), *self._release(delivered.batch))
        self._note(delivered, record, warnings)
        self._report(
            BatchProgress(
                batch_id=delivered.batch.batch_id,
                rows_out=delivered.rows_in,
                rows_read=record.rows_read,
                already=delivered.already,
                sinks={name: sink_progress(published) for name, published in delivered.sinks.items()},
                stage_ms=delivered.stage_ms,
                decide_ms=delivered.decide_ms,
                publish_ms=delivered.publish_ms,
                path=record.path,
                dropped=delivered.dropped,
                warnings=warnings,
            )
        )
        if self._limit is not None and self.summary.batches >= self._limit:
            self.limit_reached.set()

    def _note(self, delivered: Delivered, record: _BatchRecord, warnings: Sequence[str]) -> None:
        """Note for the page, and tell exporters, what was measured of the batch."""
        if self._records is None and not self._observation.is_on:
            return
        generation, times = self.coordinator.generation, self._times
        rows_read, path = record.rows_read, record.path
        measured = record_of(delivered, generation=generation, rows_read=rows_read, path=path, times=times, warnings=warnings)
        if self._records is not None:
            self._records.write(measured)
        self._observation.record(measured)

    def _report_recovered(self, recovered: Recovered) -> None:
        if recovered.batch is None or not recovered.rolled_forward:
            return
        self._report(
            BatchProgress(
                batch_id=recovered.batch.batch_id,
                recovered=True,
                sinks={name: sink_progress(published) for name, published in recovered.sinks.items()},
                path="recovery",
                warnings=recovered.warnings,
            )
        )

    def _report(self, progress: BatchProgress) -> None:
        self.summary = self.summary.plus(progress)
        _log.info("Pipeline %s: %s.", self._runtime.pipeline, describe(progress))
        if not self._observers:
            for warning in progress.warnings:
                _log.warning("Pipeline %s, batch %d: %s", self._runtime.pipeline, progress.batch_id, warning)
        if self._observation.is_on:
            self._observation.batch(progress, self.coordinator.summary.totals)
        for observer in self._observers:
            observer(progress)
