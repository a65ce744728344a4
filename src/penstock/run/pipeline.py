"""`Pipeline`: a pipeline file (or the same settings in code) and everything one can do with it, one method per command."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.model import BatchId, SinkName, SourceName
from penstock.observe.batch_life import BatchLife, lives_of
from penstock.observe.export.observation import Observation
from penstock.observe.history import HistoryRow
from penstock.observe.last_error import noting_error
from penstock.observe.listening import Listening, answering
from penstock.observe.status import Status
from penstock.observe.status_reader import StatusReader
from penstock.run import operations
from penstock.run.assembly import DeliveryPlan, ledger_of
from penstock.run.doctor import Diagnosis, doctor_of
from penstock.run.operations import Verification
from penstock.run.pipeline_acts import PipelineActs
from penstock.run.startable import (
    require_brokers,
    require_continued,
    require_guarantee,
    require_logins,
    require_parts,
    require_pyspark,
)
from penstock.run.status import status_of
from penstock.spec.pipeline import PipelineSettings
from penstock.support.listening import host_and_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.core.quarantined_record import QuarantinedRecord
    from penstock.observe.page.watched import Watched
    from penstock.registry.decoding import DecodePass
    from penstock.run.check import CheckReport
    from penstock.run.compare import Comparison
    from penstock.run.explain import Explanation
    from penstock.run.open_delivery import Observer
    from penstock.run.query import Query
    from penstock.run.reading import Reading
    from penstock.run.state import StateReport
    from penstock.run.state_rows import StateChoice, StateExport, StateRows


class Pipeline(PipelineActs):
    """One pipeline. Opens nothing before a method needs it; only methods that take or return a session or query import Spark."""

    def __init__(self, settings: PipelineSettings, *, modules: Path | None = None, file: str | Path | None = None) -> None:
        self.settings, self._modules, self._file = settings, modules, file
        self._observation: Observation | None = None

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Pipeline":
        """Read a pipeline file; each of `overrides` is `key.path=value`. Raises Usage naming file, line and key."""
        from penstock.spec.load import load

        return cls(load(Path(path), overrides), modules=Path(path).resolve().parent, file=path)

    @property
    def plan(self) -> DeliveryPlan:
        """The configuration of its delivery. Sources are in the order of the file; `start` takes the order of the plan."""
        sources = tuple(SourceName(name) for name in self.settings.sources)
        return DeliveryPlan(settings=self.settings, sources=sources, modules=self._modules, output_mode=self.settings.output_mode)

    def start(
        self,
        spark: "SparkSession | None" = None,
        *,
        observers: "Sequence[Observer]" = (),
        batches: int | None = None,
        stop_wanted: Callable[[], bool] = bool,
    ) -> "Query":
        """Check the guarantee, recover, and start the query. `batches`: see `Delivery.start`.

        `stop_wanted` may be called by any thread: once it returns true, an append or a publication that was tried twice is not
        tried again. It stops nothing else: `Query.run_until` does.

        Raises Refused, Usage, Retryable or Failed before anything runs.
        """
        require_pyspark()
        from penstock.run.failure import is_spark_gone
        from penstock.run.start import start

        observation = self._observation or self._new_observation()
        try:
            with noting_error(self.settings.home, of_start=True):
                return start(
                    self.settings,
                    self.plan,
                    spark or self.session(),
                    observers=observers,
                    batches=batches,
                    stop_wanted=stop_wanted,
                    observation=observation,
                )
        except Exception as error:
            is_stop = stop_wanted() and is_spark_gone(error)  # its signal ended Spark's Java process, too
            observation.ended(None if is_stop else error, is_stop=is_stop)
            raise

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Tell those in `on_event`, `opentelemetry` and `openlineage` what ends the body, also if no query starts in it.

        `penstock run` does so around everything; a `start` outside tells them of its own run. Raises DependencyMissing.
        """
        observation = self._observation = self._new_observation()
        ended_by: BaseException | None = None
        try:
            yield
        except Exception as error:
            ended_by = error
            raise
        finally:
            self._observation = None
            observation.ended(ended_by)

    def _new_observation(self) -> Observation:
        from penstock.run.observing import observation_of

        return observation_of(self.settings, directory=self._modules, status=self.status_reader)

    def require_startable(self) -> None:
        """Look, without Spark, for what would keep a start from working. Raises what the start would raise.

        Costs a second or two. A missing package, input directory or checkpoint, a misspelled format, a source, trigger or sink
        that is too weak, a database that refuses the login, a file of one that takes no write, and brokers that do not answer
        are found. A start, and `check`, find more.
        """
        require_parts(self.settings, self.plan)
        require_guarantee(self.settings, self.plan)
        require_continued(self.settings, self.plan)
        require_brokers(self.settings)
        require_logins(self.plan)

    def require_parts(self) -> None:
        """Do as `require_startable`, without a look at ledger and checkpoint."""
        require_parts(self.settings, self.plan)

    def session(self) -> "SparkSession":
        """Return the active Spark session, or a new one with the settings of the file and its log in `<home>/spark.log`.

        Raises DependencyMissing without PySpark or Java, Failed if Spark does not start.
        """
        require_pyspark()
        from penstock.run.session import session_of

        return session_of(self.settings)

    def frame(
        self, spark: "SparkSession", *, decoding: "Mapping[SourceName, DecodePass] | None" = None
    ) -> "tuple[DataFrame, Mapping[SourceName, DataFrame]]":
        """Return the DataFrame that is delivered, and those of the sources. `decoding`: see `open_sources`. Raises Usage."""
        from penstock.run.start import frame_of

        return frame_of(self.settings, spark, modules=self._modules, decoding=decoding)

    def check(self, spark: "SparkSession | None" = None) -> "CheckReport":
        """Return what is guaranteed, source by source, operator by operator, sink by sink. Leaves nothing behind."""
        spark = spark or self.session()
        from penstock.run.check import check

        return check(self.settings, self.plan, spark)

    def explain(self, spark: "SparkSession | None" = None) -> "Explanation":
        """Return how a batch will go: scans, operators, path, what each sink does."""
        spark = spark or self.session()
        from penstock.run.explain import explain

        return explain(self.settings, self.plan, spark)

    def status(self, *, known: Status | None = None) -> Status:
        """Return where the pipeline stands, beside a running driver or not.

        `known`: an earlier status, whose places and waiting files are used instead of another look at them.
        """
        return status_of(self.plan, known=known)

    def status_reader(self) -> StatusReader:
        """Return what reads `status` again and again, and looks at places and waiting files less often."""
        return StatusReader(lambda known: self.status(known=known), pipeline=self.settings.pipeline)

    def watched(self) -> "Watched":
        """Return what the page reads of the pipeline, again and again, beside a running driver or not."""
        from penstock.observe.page.watched import Watched

        file = "FILE" if self._file is None else str(self._file)
        plan = self.plan
        return Watched(reader=self.status_reader(), open_ledger=lambda: ledger_of(plan), home=self.settings.home, file=file)

    @contextmanager
    def metrics_served(self) -> Iterator[str | None]:
        """Serve metrics and health while the body runs, where `metrics` of the settings says. Yields the URL; None without it.

        `penstock run` does so around everything, before Spark starts. Raises DependencyMissing, Usage, Failed (address in use).
        """
        given = self.settings.metrics
        if given is None:
            yield None
            return
        (host, port), tls = host_and_port(given.listen), given.tls
        certificate, key = (None, None) if tls is None else (Path(tls.certificate_file), Path(tls.key_file))
        where = Listening(host=host, port=port, token=given.token, certificate=certificate, key=key)
        with answering(where, [self.watched()]) as url:
            yield url

    def history(self, *, batch_id: int | None = None, limit: int | None = None) -> Sequence[HistoryRow]:
        """Return the ledger's entries, newest first: at most `limit`, and with `batch_id` only the decisions of that batch."""
        return operations.history_of(self.plan, batch_id=None if batch_id is None else BatchId(batch_id), limit=limit)

    def lives(self, *, batch_id: int | None = None, limit: int | None = None) -> Sequence[BatchLife]:
        """Return what `history` returns, each entry with the steps that its driver measured, as far as they are noted here."""
        return lives_of(self.history(batch_id=batch_id, limit=limit), home=self.settings.home)

    def offsets(self, batch_id: int) -> HistoryRow:
        """Return the newest decision of one batch. Raises Failed if the ledger does not retain it."""
        return operations.offsets_of(self.plan, BatchId(batch_id))

    def state(self, *, memory: int | str | None = None, disk: int | str | None = None) -> "StateReport":
        """Return what the query keeps from batch to batch, its growth and forecasts. Works beside a running driver, without Java.

        `memory`, `disk`: limits such as `4GB`, in place of those of the settings. Raises Usage, CheckpointDamaged.
        """
        from penstock.run.state import state_report
        from penstock.spec.state_limits import StateLimits

        return state_report(self.plan, limits=StateLimits(memory=memory, disk=disk))

    def find_state(
        self,
        key: Mapping[str, str],
        spark: "SparkSession | None" = None,
        *,
        choice: "StateChoice | None" = None,
        limit: int = 100,
    ) -> "StateRows":
        """Return the state of a key, of which `key` gives some columns or all, each value as text. Raises Usage, Failed."""
        spark = spark or self.session()
        from penstock.run.state_rows import StateChoice, find_rows

        return find_rows(self.plan, spark, choice=choice or StateChoice(), key=key, limit=limit)

    def export_state(
        self, directory: str | Path, spark: "SparkSession | None" = None, *, choice: "StateChoice | None" = None
    ) -> "StateExport":
        """Write the state of an operator as Parquet into a new directory. Raises Refused if it exists, Usage, Failed."""
        spark = spark or self.session()
        from penstock.run.state_rows import StateChoice, export_rows

        return export_rows(self.plan, spark, choice=choice or StateChoice(), directory=directory)

    def verify(self, sink: str | None = None, *, since: int | None = None) -> Verification:
        """Compare every sink's content, or that of `sink`, with the ledger; with `since` only what later batches brought."""
        return operations.verify(
            self.plan, sink=None if sink is None else SinkName(sink), since=None if since is None else BatchId(since)
        )

    def read(
        self,
        sink: str | None = None,
        accounts: Collection[str] | None = None,
        batch: int | None = None,
        *,
        added: bool = False,
        counted: bool = False,
    ) -> "Reading":
        """Return a table's files as of a batch, as `penstock.read` does. Works beside a running driver, without Spark or Java."""
        from penstock.run.reading import read_table

        return read_table(self.plan, sink, accounts, batch, added=added, counted=counted)

    def quarantined(self, *, batch: int | None = None) -> "Sequence[QuarantinedRecord]":
        """Return the records in the quarantine, or those that `batch` brought. Works without Spark."""
        from penstock.run.quarantined import quarantined_records

        return quarantined_records(self.plan, batch=batch)

    def quarantined_record(
        self,
        *,
        offset: int | None = None,
        partition: int | None = None,
        topic: str | None = None,
        record_id: str | None = None,
    ) -> "QuarantinedRecord":
        """Return one record of the quarantine, by its id or by its place in Kafka. Raises Failed unless exactly one is found."""
        from penstock.run.quarantined import quarantined_record

        return quarantined_record(self.plan, offset=offset, partition=partition, topic=topic, record_id=record_id)

    def doctor(self) -> Diagnosis:
        """Return what is pending, account by account, and what could hurt. Only looks."""
        return doctor_of(self.plan)

    def compare(
        self, other: "Pipeline", *, from_batch: int | None = None, sinks: Sequence[str] = (), show_rows: int = 0
    ) -> "Comparison":
        """Return where the contents of this pipeline and `other` differ, by rows and digests of the batches that both decided.

        `from_batch`: the first one; None for all that both ledgers retain. `sinks`: `NAME` or `NAME=OTHER`; without any, those of
        equal names, or the only sink of each. `show_rows`: read up to so many rows of each batch that differs, in parquet sinks.
        Raises Usage, BatchForgotten, and Refused where the ledgers hash rows differently.
        """
        from penstock.run.compare import compare, pair_of

        batch_id = None if from_batch is None else BatchId(from_batch)
        pairs = [pair_of(each, self.plan, other.plan) for each in sinks]
        return compare(self.plan, other.plan, from_batch=batch_id, pairs=pairs, show_rows=show_rows)


def read(
    pipeline: Pipeline | str | Path,
    sink: str | None = None,
    accounts: Collection[str] | None = None,
    batch: int | None = None,
    *,
    added: bool = False,
    counted: bool = False,
) -> "Reading":
    """Return the table of `sink` (None: the pipeline's only parquet sink) as of the newest batch that every account shows.

    `accounts`: only of these. `batch`: as of this one. `added`: only what that batch added, as it was then. `counted`: with the
    rows of each file, as far as manifests are kept, which takes a request for each of up to some 1,000 batches in a store.

    Works beside a running driver, without Spark and Java. Raises Usage; Retryable while `batch` is not published everywhere;
    BatchForgotten if it is older than the ledger retains; Refused if maintenance rewrote files, so that they tell no batch, or
    if something else is in an account's place.
    """
    opened = pipeline if isinstance(pipeline, Pipeline) else Pipeline.from_file(pipeline)
    return opened.read(sink, accounts, batch, added=added, counted=counted)
