"""The exporter of OpenLineage: events of a run with its datasets, their columns, and how many rows it delivered so far.

A run of the pipeline is a run of OpenLineage: START when the ledger is open, RUNNING while batches are delivered, then COMPLETE,
FAIL, or ABORT for one that a newer run fenced. One that was killed says nothing; the next run says ABORT for it, by a note in the
pipeline's home. Counts in an event are those of the run so far. Needs the extra `openlineage`.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.base import DatasetFacet, InputDatasetFacet, OutputDatasetFacet, RunFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from openlineage.client.uuid import generate_new_uuid

from penstock.core.model import AccountName, SinkName, SinkTotals, Totals
from penstock.errors import Fenced
from penstock.observe.batch_record import SparkRecord
from penstock.observe.export.facts import BatchEnded, RunEnded, RunStarted
from penstock.observe.export.places import datasets_of, datasets_read
from penstock.observe.export.queue import ExportQueue, Patience
from penstock.observe.note import read_note, write_note
from penstock.spec.export import OpenLineage
from penstock.spec.source import Source

_KIND = "lineage_run"
_CAPACITY = 100
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRun:
    """The run that the newest events were about. `is_over`: its end was handed over to be sent."""

    run_id: str
    is_over: bool = False


class Lineage:
    """The exporter behind `openlineage`. `home`: where the run is noted. `sources`, `sinks`: their settings."""

    def __init__(
        self,
        pipeline: str,
        settings: OpenLineage,
        *,
        home: str,
        sources: Mapping[str, Source],
        sinks: Mapping[str, object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        logging.getLogger("openlineage").addHandler(logging.NullHandler())
        self._client = client_of(settings)
        self._pipeline, self._namespace, self._home = pipeline, settings.namespace, home
        self._sources, self._sinks = sources, sinks
        self._interval_s, self._clock, self._said_s = settings.interval / 1000, clock, clock()
        self._run_id = str(generate_new_uuid())
        self._run: RunStarted | None = None
        self._totals: SinkTotals = {}
        self._rows_read: int | None = 0
        self.queue = ExportQueue[RunEvent]("openlineage", self._send, capacity=_CAPACITY)

    def started(self, run: RunStarted) -> None:
        self._run, self._totals = run, run.totals
        self._abort_former(run.at_ms)
        write_note(self._home, _KIND, LineageRun(run_id=self._run_id))
        self._say(RunState.START, run.at_ms)

    def batch(self, batch: BatchEnded) -> None:
        progress = batch.progress
        if progress.recovered or progress.already:
            return
        self._totals = batch.totals
        known = self._rows_read is not None and progress.rows_read is not None
        self._rows_read = (self._rows_read or 0) + (progress.rows_read or 0) if known else None
        if self._clock() - self._said_s >= self._interval_s:
            self._said_s = self._clock()
            self._say(RunState.RUNNING, time.time_ns() // 1_000_000)

    def steps(self, record: SparkRecord) -> None:
        """Nothing: lineage is of rows."""

    def ended(self, end: RunEnded) -> None:
        if self._run is None and end.error is None:  # a standby whose turn did not come
            return
        if self._run is None:  # it was refused before the ledger was open: a run beside it goes on
            self._say(RunState.START, end.at_ms)
        if end.error is None:
            self._say(RunState.COMPLETE, end.at_ms)
        elif end.exit_code == Fenced.exit_code:
            self._say(RunState.ABORT, end.at_ms)
        else:
            # Without the error's message, which can quote a value of a row.
            text = f"The run ended with {end.error}, exit code {end.exit_code}."
            self._say(RunState.FAIL, end.at_ms, {"errorMessage": ErrorMessageRunFacet(text, "PYTHON")})
        if self._run is not None and self._is_newest():
            write_note(self._home, _KIND, LineageRun(run_id=self._run_id, is_over=True))

    def close(self, *, until_s: float) -> None:
        self.queue.close(until_s=until_s)
        self._client.close(0)

    def _is_newest(self) -> bool:
        """Return whether no run began since, which is not over when this one is."""
        newest = read_note(self._home, _KIND, LineageRun)
        return newest is None or newest.run_id == self._run_id

    def _abort_former(self, at_ms: int) -> None:
        """Say that the run before has ended, if it was killed before it could."""
        former = read_note(self._home, _KIND, LineageRun)
        if former is not None and not former.is_over:
            self.queue.put(self._event(RunState.ABORT, at_ms, run_id=former.run_id))

    def _say(self, state: RunState, at_ms: int, facets: Mapping[str, RunFacet] | None = None) -> None:
        inputs, outputs = list(self._inputs()), list(self._outputs())
        self.queue.put(self._event(state, at_ms, run_id=self._run_id, facets=facets, inputs=inputs, outputs=outputs))

    def _event(
        self,
        state: RunState,
        at_ms: int,
        *,
        run_id: str,
        facets: Mapping[str, RunFacet] | None = None,
        inputs: Sequence[InputDataset] = (),
        outputs: Sequence[OutputDataset] = (),
    ) -> RunEvent:
        run, is_bounded = self._run, self._run is not None and self._run.is_bounded
        engine: dict[str, RunFacet] = {}
        if run is not None and run.spark_version:
            own = ProcessingEngineRunFacet(version=run.spark_version, name="spark", openlineageAdapterVersion=_version())
            engine = {"processing_engine": own}
        kind = JobTypeJobFacet("BATCH" if is_bounded else "STREAMING", integration="PENSTOCK", jobType="JOB")
        return RunEvent(
            eventTime=datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds"),
            producer=f"urn:penstock:{_version()}",
            run=Run(run_id, facets={**engine, **(facets or {})}),
            job=Job(self._namespace, self._pipeline, facets={"jobType": kind}),
            eventType=state,
            inputs=list(inputs),
            outputs=list(outputs),
        )

    def _inputs(self) -> Iterator[InputDataset]:
        columns = {} if self._run is None else self._run.source_columns
        named = [(name, each) for name, source in self._sources.items() for each in datasets_read(source, name)]
        for name, dataset in named:
            rows = self._rows_read if len(named) == 1 else None
            read: dict[str, InputDatasetFacet] = {}
            if rows is not None and self._run is not None:
                read = {"inputStatistics": InputStatisticsInputDatasetFacet(rowCount=rows)}
            yield InputDataset(dataset.namespace, dataset.name, facets=_schema(columns.get(name, ())), inputFacets=read)

    def _outputs(self) -> Iterator[OutputDataset]:
        columns = {} if self._run is None else self._run.sink_columns
        for name, sink in self._sinks.items():
            for account, dataset in datasets_of(sink, SinkName(name)):
                yield OutputDataset(
                    dataset.namespace,
                    dataset.name,
                    facets=_schema(columns.get(name, ())),
                    outputFacets=self._written(SinkName(name), account),
                )

    def _written(self, sink: SinkName, account: str | None) -> dict[str, OutputDatasetFacet]:
        """Return what this run wrote into a sink, or one account of it."""
        if self._run is None:
            return {}
        now, before = (_summed(totals.get(sink, {}), account) for totals in (self._totals, self._run.totals))
        facet = OutputStatisticsOutputDatasetFacet(
            rowCount=now.rows - before.rows,
            size=now.size_bytes - before.size_bytes or None,
            fileCount=now.files - before.files or None,
        )
        return {"outputStatistics": facet}

    def _send(self, events: Sequence[RunEvent], patience: Patience) -> None:
        """Send each event; the client tries again. Raises what it raises for the newest one that was not taken."""
        failure: Exception | None = None
        for event in events:
            if patience.is_over:
                return
            try:
                self._client.emit(event)
            except Exception as error:  # noqa: BLE001 - the client lets through what its HTTP library raises
                failure = error
        if failure is not None:
            raise failure


def client_of(settings: OpenLineage) -> OpenLineageClient:
    """Return a client for the settings; where they have no `url`, one by its own file and variables."""
    if settings.url is None:
        return OpenLineageClient()
    transport = {
        "type": "http",
        "url": f"{settings.url.rstrip('/')}/",  # else the last part of its path is replaced
        "endpoint": settings.endpoint.lstrip("/"),
        "timeout": settings.timeout / 1000,
        "custom_headers": dict(settings.headers),
        "retry": {"total": _TRIES, "read": 0, "connect": _TRIES},
        **({"auth": {"type": "api_key", "api_key": settings.token}} if settings.token else {}),
        **({"ssl_context": _tls(settings)} if settings.ca_file or settings.certificate_file else {}),
    }
    return OpenLineageClient(config={"transport": transport})


def _tls(settings: OpenLineage) -> Mapping[str, str | None]:
    files = {
        "ca_cert_path": settings.ca_file,
        "client_cert_path": settings.certificate_file,
        "client_key_path": settings.key_file,
    }
    return {name: file for name, file in files.items() if file is not None}


def _schema(columns: Sequence[tuple[str, str]]) -> dict[str, DatasetFacet]:
    if not columns:
        return {}
    fields = [SchemaDatasetFacetFields(name, type=kind, ordinal_position=place) for place, (name, kind) in enumerate(columns, 1)]
    return {"schema": SchemaDatasetFacet(fields=fields)}


def _summed(accounts: Mapping[AccountName, Totals], account: str | None) -> Totals:
    """Return the totals of an account, or the sum of all."""
    found = [totals for name, totals in accounts.items() if account is None or name == account]
    return Totals(
        rows=sum(each.rows for each in found),
        files=sum(each.files for each in found),
        size_bytes=sum(each.size_bytes for each in found),
    )


def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:  # run from a clone
        return "unknown"
