"""A running query: Spark's StreamingQuery and what Penstock knows of it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.checkpoint.repair import remove_unwritten_start
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import BatchId, OffsetRange
from penstock.errors import Fenced, NotPublishedYet, PenstockError, Retryable
from penstock.observe.batch_record import BatchRecords
from penstock.observe.export.observation import Observation
from penstock.observe.history import HistoryRow
from penstock.observe.last_error import noting_error
from penstock.observe.progress import RunSummary
from penstock.observe.state_samples import StateSamples
from penstock.run.assembly import DeliveryPlan, checkpoint_of, ledger_of
from penstock.run.connect import frame_of_writer, is_of_client, summary_of
from penstock.run.failure import STOPPED, StopRequested, Undelivered, error_from_exception, error_from_query, is_spark_gone
from penstock.run.interrupt import Interrupt
from penstock.run.measuring import BusyLook, SparkSteps
from penstock.run.operations import history_of, offsets_of
from penstock.source.naming import naming
from penstock.support.secret import scrub

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.run.delivery import Delivery

POLL_S = 0.2
_STOPS_OLDER = "spark.sql.streaming.stopActiveRunOnRestart"
FENCE_LOOK_S = 15.0
"""Seconds between a run's looks for a newer run. A batch finds out by itself; this is for times without batches."""


def start_streaming(writer: "DataStreamWriter", plan: DeliveryPlan) -> StreamingQuery:
    """Start the query that `writer` describes; one of the same session that runs on its checkpoint is stopped first.

    Raises what kept Spark from it as one of Penstock's errors.
    """
    try:
        session = frame_of_writer(writer).sparkSession
        _stop_older(session, checkpoint_of(plan))
        named = getattr(plan.settings, "named_sources", None)  # None: the user's code has opened the sources
        with nullcontext() if named is None else naming(session, named=named):
            return writer.option("checkpointLocation", plan.spark_checkpoint).start()
    except Exception as error:
        raise error_from_query(str(error), checkpoint=checkpoint_of(plan), doing="start") from error


def _stop_older(session: SparkSession, checkpoint: SparkCheckpoint) -> None:
    """Stop the active query of `checkpoint`, as Spark does when a newer one starts, and remove what that leaves.

    Spark interrupts it where it is, maybe while it writes `offsets/0`, and would refuse to start the newer one for it.
    """
    if session.conf.get(_STOPS_OLDER, "true") == "false":
        return
    active = session.streams.active
    query_id = checkpoint.query_id() if active else None
    for older in active:
        if older.id == query_id:
            older.stop()
            remove_unwritten_start(checkpoint)


class Query:
    """The query that `Pipeline.start` and `Delivery.start` return: a StreamingQuery, by delegation, with the methods below.

    `awaitTermination` and `stop` raise what ended the query as one of Penstock's errors.
    """

    def __init__(self, streaming: StreamingQuery, delivery: "Delivery", observation: Observation | None = None) -> None:
        self._streaming, self._delivery = streaming, delivery
        self._observation = observation or Observation()
        self._ending = threading.RLock()
        self._ended = False
        self._error: PenstockError | None = None
        self._stop_wanted: Callable[[], bool] = bool
        self._look_at_s = time.monotonic() + FENCE_LOOK_S
        home = delivery.plan.settings.home
        self._steps = SparkSteps(streaming, BatchRecords(home), StateSamples(home), on_record=self._observation.record)
        if delivery.opened is not None:
            self._observation.watch(BusyLook(streaming, lambda: self._delivery.opened))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streaming, name)

    def __repr__(self) -> str:
        """Say which pipeline it is, whether it runs, and its newest batch, without an error where Spark is gone."""
        opened, found = self._delivery.opened, list[str]()
        try:
            found.append("running" if self._streaming.isActive else self._how_it_ended())
        except Exception:  # noqa: BLE001 - Spark's process is gone, by whichever class that is told
            found.append("lost")
        if opened is not None:
            last = opened.summary.last_batch_id
            found += [f"generation {opened.coordinator.generation}", "no batch yet" if last is None else f"batch {last}"]
        return f"<penstock query of pipeline {self._delivery.plan.pipeline!r}: {', '.join(found)}>"

    def _how_it_ended(self) -> str:
        """Return `failed` with the error that ended the query, or `ended` if it was stopped or has delivered what there was."""
        failure, exception = self._error or self._delivery.failure, self.exception()
        if failure is None and exception is not None:
            failure = error_from_query(str(exception), checkpoint=checkpoint_of(self._delivery.plan))
        if failure is None or isinstance(failure, StopRequested):
            return "ended"
        error = error_from_exception(failure)
        return f"failed with {type(error).__name__}: {scrub(error.message).rstrip('.')}"

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self._streaming.isActive

    def exception(self) -> StreamingQueryException | None:
        """Return what ended the query, as Spark tells it; None while it runs, and after a stop that somebody asked for."""
        ended_by = self._streaming.exception()
        return None if ended_by is None or f"{Undelivered.__name__}: {STOPPED}" in str(ended_by) else ended_by

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's name
        """Wait for the end, at most `timeout` seconds. Return whether the query has ended. Raises what ended it.

        Ctrl-C lets the current batch end, stops the query and raises KeyboardInterrupt; the second one raises it at once.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._while_spark_lives(), Interrupt() as interrupt:
            while self._streaming.isActive:
                if interrupt.wanted:
                    self.stop()
                    raise KeyboardInterrupt
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._wait()
            opened = self._delivery.opened
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if opened is not None and not opened.is_published_within(left_s):
                return False
            self._end()
        return True

    def run_until(self, stop_wanted: Callable[[], bool], *, grace_s: float) -> None:
        """Wait for the end, for `stop_wanted`, or for the delivery's batch limit; then stop. Raises what ended the query."""
        self._stop_wanted = stop_wanted
        with self._while_spark_lives():
            while self._streaming.isActive:
                opened = self._delivery.opened
                if stop_wanted() or (opened is not None and opened.limit_reached.is_set()):
                    self.stop(grace=grace_s)
                    return
                self._wait()
            self._end()

    def stop(self, grace: float = 30.0) -> None:
        """Let the current batch end for at most `grace` seconds, then stop; a batch cut off is delivered by the next start.

        With `publish_behind` it returns when what was decided is published. Raises what ended the query, unless it ended before;
        so it does, soon, if a sink did not answer: what was tried twice is not tried again.
        """
        had_ended = self._ended
        opened = self._delivery.opened
        drained = opened is None or opened.drain(grace_s=grace)
        running = self._streaming.isActive
        failure = self._delivery.failure
        self._streaming.stop()
        interrupted = (running and failure is None) or not (drained or isinstance(self._delivery.failure, PenstockError))
        if interrupted and not isinstance(self._delivery.failure, NotPublishedYet):
            # Any other late error comes from interrupting the batch, or Spark's own writing to its checkpoint.
            self._delivery.failure = StopRequested()
        if not had_ended:
            self._end()

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        """Wait as Spark's method does, then until what it delivered is published."""
        self._streaming.processAllAvailable()
        if self._delivery.opened is not None:
            self._delivery.opened.coordinator.wait()

    def history(self) -> list[HistoryRow]:
        """Return the ledger's retained entries, newest first."""
        return list(history_of(self._delivery.plan))

    def offsets(self, batch_id: int) -> tuple[OffsetRange, ...]:
        """Return the offsets that `batch_id` was decided with. Raises Failed if the ledger does not retain it."""
        return offsets_of(self._delivery.plan, BatchId(batch_id)).offsets

    def delivering(self) -> BatchId | None:
        """Return the batch that this process delivers at the moment, None between two batches, and on Spark Connect."""
        opened = self._delivery.opened
        return None if opened is None else opened.delivering

    def summary(self) -> RunSummary | None:
        """Return what this run did so far, None if it has not opened; on Spark Connect as far as the ledger shows."""
        opened = self._delivery.opened
        plan = self._delivery.plan
        if opened is not None:
            return replace(opened.summary, generation=opened.coordinator.generation)
        if plan.left is None:
            return None
        with closing(ledger_of(plan)) as ledger:
            return summary_of(ledger, plan.left, pipeline=plan.pipeline, sinks=plan.settings.sinks)

    @contextmanager
    def _while_spark_lives(self) -> Iterator[None]:
        try:
            yield
        except (Py4JNetworkError, ConnectionError) as gone:
            self._end_tries()
            raise self._observed(
                Retryable(
                    "Spark's Java process ended in mid-run: it was killed, or it crashed.",
                    remedy="Start again: nothing is lost. If it happens again, look for the out-of-memory killer and into "
                    "Spark's log.",
                ),
                gone,
            ) from gone
        except PySparkException as gone:
            if not is_of_client(self._streaming):
                raise
            raise self._observed(
                Retryable(
                    "The server of Spark Connect does not answer for the query any more.",
                    remedy="Start again when it is there: nothing is lost.",
                ),
                gone,
            ) from gone

    def _observed(self, error: PenstockError, cause: Exception) -> PenstockError:
        """Tell others of what ended the run, and return it. A stop whose signal ended Spark's Java process too is no failure."""
        is_stop = self._stop_wanted() and is_spark_gone(cause)
        self._observation.ended(None if is_stop else error, is_stop=is_stop)
        return error

    def _end_tries(self) -> None:
        """Have a batch that is tried again and again fail soon: Spark and the end of the process wait for it."""
        if self._delivery.opened is not None:
            self._delivery.opened.drain(grace_s=0)

    def _wait(self) -> None:
        try:
            self._streaming.awaitTermination(POLL_S)  # type: ignore[arg-type]
        except StreamingQueryException:
            return  # raised by _end, once and in one place
        self._note_steps()
        self._stop_if_unpublished()
        if time.monotonic() >= self._look_at_s:
            self._look_at_s = time.monotonic() + FENCE_LOOK_S
            self._stop_if_fenced()

    def _note_steps(self) -> None:
        opened = self._delivery.opened
        if opened is not None:
            self._steps.note(opened.coordinator.generation, delivered=opened.summary.last_batch_id)

    def _stop_if_unpublished(self) -> None:
        """Stop the query if publishing beside it failed: otherwise nobody would notice before the next batch."""
        opened = self._delivery.opened
        failure = None if opened is None else opened.failure()
        if failure is not None and self._delivery.failure is None:
            self._delivery.failure = self._delivery.diagnose(error_from_exception(failure))
            self._streaming.stop()

    def _stop_if_fenced(self) -> None:
        opened = self._delivery.opened
        if opened is None:
            return
        try:
            opened.coordinator.require_newest()
        except Fenced as fenced:
            self._delivery.failure = fenced
            self._end_tries()
            self._streaming.stop()
        except PenstockError:  # the ledger cannot be read just now; the next batch fails if that lasts
            return

    def _end(self) -> None:
        """Finish once, in the first caller. Every caller that waits for the query gets the error that ended it."""
        with self._ending:
            if not self._ended:
                self._note_steps()
                try:
                    with noting_error(self._delivery.plan.settings.home):
                        self._finish()
                except PenstockError as error:
                    self._error = error
                self._ended = True
                if self._error is None:
                    self._observation.ended(None, is_stop=self._stop_wanted())
                else:
                    self._observed(self._error, self._error)
            if self._error is not None:
                raise self._error

    def _finish(self) -> None:
        opened = self._delivery.opened
        failure = self._delivery.failure
        exception = self.exception()
        if failure is None and exception is not None:
            error = self._delivery.diagnose(error_from_query(str(exception), checkpoint=checkpoint_of(self._delivery.plan)))
            self._delivery.release()
            raise error
        if failure is not None and not isinstance(failure, StopRequested):
            self._delivery.release()
            raise error_from_exception(failure) from failure
        try:
            if opened is not None:
                opened.close()
        except Exception as cause:
            raise error_from_exception(cause) from cause
