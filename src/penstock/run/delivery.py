"""`Delivery`: what a streaming query calls for every micro-batch. Configuration until it runs, and picklable as such."""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.core.model import BatchId, Guarantee, SinkName, SourceName
from penstock.errors import PenstockError
from penstock.observe.batch_record import BatchRecords
from penstock.observe.export.observation import Observation
from penstock.observe.guarantee_note import note_guarantee
from penstock.observe.last_error import note_error, noting_error
from penstock.protocols import ALL_ROWS, Taken
from penstock.run.assembly import DeliveryPlan, assemble, selections_of
from penstock.run.connect import frame_of_writer, is_of_client, require_no_limit
from penstock.run.failure import STOPPED, StopRequested, Undelivered, error_from_exception, translate_start_errors
from penstock.run.given_writer import note_started, require_no_place, require_writer
from penstock.run.observing import columns_of
from penstock.run.open_delivery import Observer, OpenDelivery
from penstock.run.preflight.description import RecordedRun, record_run
from penstock.run.query import Query, start_streaming
from penstock.run.query_facts import facts_of_batch, facts_of_writer, run_of_batch
from penstock.run.required_guarantees import require_batches, require_demanded
from penstock.spec.pipeline import DeliverySettings
from penstock.support.error_transport import encode_error
from penstock.support.secret import scrub
from penstock.transform.selection import taken_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spec.sink import GivenSink

_log = logging.getLogger(__name__)


class Delivery:
    """Exactly-once delivery of one streaming query into the given sinks.

    Either `delivery.start(df.writeStream…)`, or pass the object itself to `foreachBatch` with `delivery.checkpoint` as checkpoint
    location: then it checks the query, opens and recovers in the first batch of each run. `pipeline` names the ledger and
    outlives every checkpoint; `sinks` are settings such as `penstock.Parquet`, or objects of the user's own class, derived from
    `penstock.OwnSink`; `home` is where ledger, spool and checkpoint are unless told otherwise; these places may be
    mappings of `url` and `options`, as in a pipeline file. Works on classic and Connect sessions. `publish_behind`: where
    `start` starts the query of a classic session, a batch is published while Spark computes the next one
    (docs/howto/throughput.md). `publish_on`: which processes publish into Kafka, Cassandra and over HTTP (same page).
    `retry_timeout`: how long an append or a publication is tried, such as `"10s"`.

    Every exception in a batch, `SystemExit` included, becomes a failed batch; its cause is kept in `failure`. May be handed to
    one query after another, as in a notebook: Spark ends the older one, which has no part in what the newer one does.
    """

    def __init__(
        self,
        pipeline: str,
        *,
        home: str | Path,
        sinks: "Mapping[str, GivenSink]",
        ledger: str | Path | Mapping[str, Any] | None = None,
        spool: str | Path | Mapping[str, Any] | None = None,
        checkpoint: str | Path | Mapping[str, Any] | None = None,
        sources: Sequence[str] = (),
        guarantee: Guarantee | Literal["exactly_once", "at_least_once"] = Guarantee.EXACTLY_ONCE,
        publish_behind: bool = False,
        publish_on: Literal["driver", "executors"] = "driver",
        retry_timeout: int | str = "1m",
    ) -> None:
        values: dict[str, Any] = {"pipeline": pipeline, "home": home, "sinks": sinks, "guarantee": guarantee}
        values["retry_timeout"] = retry_timeout
        places = {"ledger": ledger, "spool": spool, "checkpoint": checkpoint}
        values |= {key: place for key, place in places.items() if place is not None}
        settings = DeliverySettings(**values, publish_behind=publish_behind, publish_on=publish_on)
        self._begin(DeliveryPlan(settings=settings, sources=tuple(SourceName(source) for source in sources)))

    def _begin(self, plan: DeliveryPlan) -> None:
        self.plan = plan
        self._open: OpenDelivery | None = None
        self._run: str | None = None
        self._failure: BaseException | None = None
        self._started: Delivery | None = None
        self._is_started_here = False
        self.observation = Observation()
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        settings = self.plan.settings
        return f"<penstock delivery of pipeline {settings.pipeline!r} into {', '.join(settings.sinks)}, home {settings.home}>"

    @classmethod
    def of_plan(cls, plan: DeliveryPlan) -> "Delivery":
        """Return a delivery by `plan`, whose settings are complete and checked."""
        made = cls.__new__(cls)
        made._begin(plan)
        return made

    @property
    def checkpoint(self) -> str:
        """The checkpoint location to give to Spark."""
        return self.plan.spark_checkpoint

    def start(self, writer: "DataStreamWriter", *, observers: Sequence[Observer] = (), batches: int | None = None) -> Query:
        """Recover, then start the query that `writer` describes; its trigger and output mode are the writer's.

        Sources, operators, output mode, trigger and options of the query are checked as those of a pipeline file are. With
        `batches` the query is to be stopped after that many new ones; `Query.run_until` does it. On Spark Connect that is
        refused, and `observers` hear of what was recovered only: the batches are delivered by a process at the server.
        Raises Refused, Usage, Retryable or Failed before Spark starts anything.
        """
        with noting_error(self.plan.settings.home, of_start=True):
            self._require_startable(writer)
            return self.start_checked(writer, observers=observers, batches=batches)

    def _require_startable(self, writer: "DataStreamWriter") -> None:
        require_writer(writer)
        facts = facts_of_writer(writer, self.plan.sources)
        claims = require_demanded(facts, self.plan)
        require_batches(facts)
        require_no_place(writer, sink=facts.sink, options=facts.options, checkpoint=self.plan.spark_checkpoint)
        self.plan = replace(self.plan, output_mode=facts.output_mode, claims=claims)

    def start_checked(
        self,
        writer: "DataStreamWriter",
        *,
        observers: Sequence[Observer] = (),
        batches: int | None = None,
        stop_wanted: Callable[[], bool] = bool,
    ) -> Query:
        """Do as `start`, without its checks: `Pipeline` has made them, from more than the writer shows.

        `stop_wanted`: see `OpenDelivery`.
        """
        if is_of_client(writer):
            require_no_limit(batches)
        former, self._started = self._started, Delivery.of_plan(replace(self.plan, left=None))
        self._started.observation = self.observation
        query = self._started._start(writer, observers=observers, batches=batches, stop_wanted=stop_wanted)
        if former is not None:  # Spark has ended its query
            former.release()
        return query

    def _start(
        self,
        writer: "DataStreamWriter",
        *,
        observers: Sequence[Observer],
        batches: int | None,
        stop_wanted: Callable[[], bool],
    ) -> Query:
        """Open, then start Spark's query. Called once: the end of an older query must not be taken for that of this one."""
        self._is_started_here = True
        behind = self.plan.settings.publish_behind and not is_of_client(writer)
        rows = frame_of_writer(writer)
        taken = taken_of(selections_of(self.plan.settings), rows)
        if self.observation.is_on:
            self.observation.describe(sink_columns=self._columns(rows, taken))
        with translate_start_errors():
            opened = self.open(
                schema=rows.schema.json(),
                taken=taken,
                observers=observers,
                batches=batches,
                behind=behind,
                stop_wanted=stop_wanted,
            )
        if is_of_client(writer):  # another process delivers the batches
            self.plan = replace(self.plan, left=opened.newest_entry())
            self.release()
        try:
            note_started(writer)
            streaming = start_streaming(writer.foreachBatch(self), self.plan)
        except PenstockError as error:
            diagnosed = self.diagnose(error)
            self.release()
            raise diagnosed from error
        except BaseException:
            self.release()
            raise
        return Query(streaming, self, self.observation)

    def _columns(self, rows: DataFrame, taken: Mapping[SinkName, Taken]) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return name and type of the columns of each sink."""
        given = {SinkName(name): rows.schema for name in self.plan.settings.sinks}
        own = {name: StructType.fromJson(json.loads(each.schema)) for name, each in taken.items()}
        return {name: columns_of(schema) for name, schema in {**given, **own}.items()}

    def open(
        self,
        *,
        schema: str | None,
        taken: Mapping[SinkName, Taken] = ALL_ROWS,
        observers: Sequence[Observer] = (),
        batches: int | None = None,
        behind: bool = False,
        stop_wanted: Callable[[], bool] = bool,
    ) -> OpenDelivery:
        """Open a new generation and recover. Releases what this object has open.

        `schema`: of the rows, None where only recovery is to follow. `taken`: what each sink takes of such rows.
        `behind`: publish each batch beside the next one; the caller must close the result when the query has ended.
        `stop_wanted`: see `OpenDelivery`.
        """
        self.release()
        home = self.plan.settings.home
        opened = OpenDelivery(
            assemble(self.plan),
            observers=observers,
            batches=batches,
            behind=behind,
            stop_wanted=stop_wanted,
            records=BatchRecords(home),
            observation=self.observation,
        )
        try:
            opened.open(schema=schema, taken=taken)
            self._record_run(opened)
            if self.plan.claims:
                note_guarantee(home, self.plan.claims)
        except BaseException:
            opened.release()
            raise
        self._open, self._failure = opened, None
        return opened

    def _record_run(self, opened: OpenDelivery) -> None:
        """Keep what this run is, for the comparison before a later one. Before it decides anything."""
        if self.plan.description is None:
            return
        coordinator, kept = opened.coordinator, opened.coordinator.decided_generation
        run = RecordedRun(
            pipeline=self.plan.pipeline,
            ledger_id=coordinator.summary.ledger_id,
            generation=coordinator.generation,
            description=self.plan.description,
        )
        record_run(self.plan.settings.home, run, keep=() if kept is None else (kept,))

    @property
    def opened(self) -> OpenDelivery | None:
        """What is open now; None before the first batch of a query that somebody else started, as that batch opens it."""
        return self._open if self._started is None else self._started.opened

    @property
    def failure(self) -> BaseException | None:
        """The exception that failed the newest query, None if there is none."""
        return self._failure if self._started is None else self._started.failure

    @failure.setter
    def failure(self, failure: BaseException | None) -> None:
        self._failure = failure

    def diagnose(self, error: PenstockError) -> PenstockError:
        """Return `error`, with which Spark ended the query, or what the ledger shows as its cause."""
        return error if self._open is None else self._open.diagnose(error)

    def release(self) -> None:
        """Close files and connections; the next use opens again."""
        if self._started is not None:
            self._started.release()
        if self._open is not None:
            self._open.release()
            self._open = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Called by Spark for every micro-batch; never raises anything but Undelivered.

        One at a time: Spark does not wait for a batch of a query that it ends, and may be handed this object for the next one.
        """
        with self._turn:
            try:
                self._follow_run(rows)
                if self._failure is None:
                    opened = self._open or self._open_in_batch(rows)
                    opened.deliver(rows, BatchId(batch_id))
            except BaseException as cause:  # noqa: BLE001 - SystemExit here would hang the query for ever (docs/GUARANTEES.md)
                if self._failure is None:  # an earlier failure stops the query, and then Spark cancels this batch
                    self._failure = cause
            failure = self._failure
        if isinstance(failure, StopRequested):
            raise Undelivered(STOPPED) from None
        if failure is not None:
            error = error_from_exception(failure)
            note_error(self.plan.settings.home, error)
            if (
                not self._is_started_here
            ):  # else `Query` raises it: here only Spark does, below its plan and a traceback of its own
                _log.error("Pipeline %s ended: %s", self.plan.settings.pipeline, scrub(str(error)))
            raise Undelivered(encode_error(error)) from None

    def _follow_run(self, rows: DataFrame) -> None:
        """Release what an earlier run opened, and forget its failure: a new run may be another query, and is checked again."""
        self._started = None
        run = run_of_batch(rows)
        if run is None or run == self._run:
            return
        if self._run is not None:
            self.release()
            self._failure = None
        self._run = run

    def _open_in_batch(self, rows: DataFrame) -> OpenDelivery:
        """Open in the first batch of a query: one that is checked here, or one that a client of Spark Connect has checked."""
        schema = rows.schema.json()
        if self.plan.left is None:
            facts = facts_of_batch(rows, self.plan.sources)
            claims = require_demanded(facts, self.plan)
            require_batches(facts)
            self.plan = replace(self.plan, output_mode=facts.output_mode, claims=claims)
        taken = taken_of(selections_of(self.plan.settings), rows)
        return self.open(schema=schema, taken=taken)

    def __getstate__(self) -> dict[str, object]:
        return {"plan": self.plan}

    def __setstate__(self, state: dict[str, DeliveryPlan]) -> None:
        self._begin(state["plan"])
