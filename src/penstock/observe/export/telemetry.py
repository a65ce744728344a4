"""The exporter of OpenTelemetry: a trace for each batch with a span for each step and sink, and metrics, by OTLP over HTTP.

Spans are made and sent in a thread of their own, so a batch costs what it takes to put it into a queue. Metrics are those of
`penstock metrics` under the same names, so the same alerts and dashboards fit. Needs the extra `otel`.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any

from opentelemetry.context import attach, detach, set_value
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from penstock.core.model import SinkName
from penstock.errors import Retryable
from penstock.observe.batch_life import Step, StepKind
from penstock.observe.batch_record import SparkRecord
from penstock.observe.export.batches import BatchJoiner, MeasuredBatch
from penstock.observe.export.facts import BatchEnded, RunEnded, RunStarted
from penstock.observe.export.places import attributes_of
from penstock.observe.export.queue import ExportQueue, Patience
from penstock.observe.look import Look, look_at
from penstock.observe.metrics import StatusCollector
from penstock.observe.progress import SinkProgress
from penstock.observe.status_reader import StatusReader
from penstock.spec.export import OpenTelemetry

_SCOPE = "penstock"
_KINDS = {"db.system.name": SpanKind.CLIENT, "http.request.method": SpanKind.CLIENT, "messaging.system": SpanKind.PRODUCER}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_SAME_LOOK_S = 0.5
"""Metrics that are read within this time are of one look at the pipeline."""

_Value = str | int | float | bool
_Sent = MeasuredBatch | RunEnded


class Telemetry:
    """The exporter behind `opentelemetry`. `sinks`: their settings. `lost`: how much each receiver did not get."""

    def __init__(
        self,
        pipeline: str,
        settings: OpenTelemetry,
        *,
        sinks: Mapping[str, object],
        status: StatusReader,
        lost: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # else its warnings are printed over the progress
        resource = _resource(pipeline)
        self._pipeline, self._generation = pipeline, 0
        self._traces = _Traces(pipeline, settings, resource, sinks) if settings.traces else None
        self._metrics = _Metrics(pipeline, settings, resource, status, lost) if settings.metrics else None
        self.queue = ExportQueue[_Sent]("opentelemetry", self._send)
        self._joiner = BatchJoiner(self.queue.put)

    def started(self, run: RunStarted) -> None:
        self._generation = run.generation

    def batch(self, batch: BatchEnded) -> None:
        self._joiner.batch(batch)

    def steps(self, record: SparkRecord) -> None:
        self._joiner.steps(record)

    def ended(self, end: RunEnded) -> None:
        self._joiner.end()
        if end.error is not None:
            self.queue.put(end)

    def close(self, *, until_s: float) -> None:
        """Send what is left. The threads of the SDK are not waited for any longer than `until_s`."""
        self.queue.close(until_s=until_s)
        closing = [partial(each.close, until_s=until_s) for each in (self._traces, self._metrics) if each is not None]
        threads = [threading.Thread(target=close, daemon=True) for close in closing]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _send(self, sent: Sequence[_Sent], patience: Patience) -> None:
        token = attach(set_value("suppress_instrumentation", True))  # noqa: FBT003 - of OpenTelemetry's own clients
        try:
            if self._metrics is not None:
                for each in sent:
                    self._metrics.measure(each)
            if self._traces is not None and not patience.is_over:
                self._traces.send(sent, generation=self._generation)
        finally:
            detach(token)


class _Traces:
    """Makes spans of what was measured, and sends those of several batches in one request."""

    def __init__(self, pipeline: str, settings: OpenTelemetry, resource: Resource, sinks: Mapping[str, object]) -> None:
        self._pipeline = pipeline
        self._sinks = {SinkName(name): (getattr(sink, "type", "python"), attributes_of(sink)) for name, sink in sinks.items()}
        self._made = _Spans()
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._made)
        self._tracer = self._provider.get_tracer(_SCOPE, _version())
        self._exporter = OTLPSpanExporter(**_connection(settings, "v1/traces"))

    def send(self, sent: Sequence[_Sent], *, generation: int) -> None:
        """Send spans of all that is given. Raises Retryable if the collector does not take them: they are not sent again."""
        for each in sent:
            if isinstance(each, MeasuredBatch):
                self._make_batch(each)
            else:
                self._make_failure(each, generation=generation)
        spans = self._made.take()
        if spans and self._exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise Retryable("the collector does not answer, or refuses it.", remedy="Look at `endpoint` and `headers`.")

    def close(self, *, until_s: float) -> None:  # noqa: ARG002 - nothing is left to be sent
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        self._provider.shutdown()

    def _make_batch(self, measured: MeasuredBatch) -> None:
        progress, record = measured.batch.progress, measured.batch.record
        began_ms = measured.began_ms or time.time_ns() // 1_000_000
        name = "recover batch" if progress.recovered else "replay batch" if progress.already else "deliver batch"
        known: dict[str, _Value | None] = {
            "penstock.pipeline": self._pipeline,
            "penstock.batch.id": progress.batch_id,
            "penstock.generation": None if record is None else record.generation,
            "penstock.batch.rows": progress.rows_out,
            "penstock.batch.rows_read": progress.rows_read,
            "penstock.batch.path": progress.path,
        }
        root = self._tracer.start_span(name, start_time=_ns(began_ms), attributes=_known(known))
        inside = set_span_in_context(root)
        for step in measured.steps:
            kind, attributes = self._of_step(step, progress.sinks)
            title = step.kind.value if step.sink is None else f"{step.kind.value} {step.sink}"
            start_ms = began_ms + step.after_ms
            span = self._tracer.start_span(title, inside, kind, attributes, start_time=_ns(start_ms))
            span.end(_ns(start_ms + step.duration_ms))
        root.end(_ns(began_ms + measured.duration_ms))

    def _of_step(self, step: Step, shares: Mapping[SinkName, SinkProgress]) -> tuple[SpanKind, Mapping[str, _Value]]:
        """Return kind and attributes of a step's span."""
        own: dict[str, _Value | None] = {"penstock.step": step.kind.name.lower()}
        if step.sink is None:
            return SpanKind.INTERNAL, _known(own)
        sink_type, known = self._sinks.get(step.sink, ("quarantine", {}))
        share = shares.get(step.sink, SinkProgress())
        kind = next((kind for name, kind in _KINDS.items() if name in known), SpanKind.INTERNAL)
        if kind is SpanKind.PRODUCER:
            own["messaging.batch.message_count"] = share.rows
        elif "db.system.name" in known:
            own["db.operation.batch.size"] = share.rows
        own |= {"penstock.sink": step.sink, "penstock.sink.type": sink_type, "penstock.sink.rows": share.rows}
        own |= {"penstock.sink.files": share.files or None, "penstock.sink.bytes": share.bytes or None}
        return kind, {**known, **_known(own)}

    def _make_failure(self, end: RunEnded, *, generation: int) -> None:
        known: dict[str, _Value | None] = {
            "penstock.pipeline": self._pipeline,
            "penstock.generation": generation or None,
            "error.type": end.error,
            "penstock.exit_code": end.exit_code,
        }
        span = self._tracer.start_span("end run", start_time=_ns(end.at_ms), attributes=_known(known))
        span.set_status(Status(StatusCode.ERROR))
        span.end(_ns(end.at_ms))


class _Spans(SpanProcessor):
    """Keeps the spans that have ended until they are taken. One thread makes and takes them."""

    def __init__(self) -> None:
        self._ended = list[ReadableSpan]()

    def on_end(self, span: ReadableSpan) -> None:
        self._ended.append(span)

    def take(self) -> Sequence[ReadableSpan]:
        taken, self._ended = self._ended, []
        return taken


class _Metrics:
    """Metrics that the SDK reads and sends at an interval, in a thread of its own: a look at the pipeline is made there, too."""

    def __init__(
        self,
        pipeline: str,
        settings: OpenTelemetry,
        resource: Resource,
        status: StatusReader,
        lost: Callable[[], Mapping[str, int]],
    ) -> None:
        self._pipeline, self._status, self._lost = pipeline, status, lost
        self._looked_at_s = 0.0
        self._look: Look | None = None
        self._is_closing = False
        exporter = OTLPMetricExporter(**_connection(settings, "v1/metrics"))
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=settings.metrics_interval)
        self._provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._make_instruments()

    def _make_instruments(self) -> None:
        meter = self._provider.get_meter(_SCOPE, _version())
        for family in StatusCollector(list).collect():
            make = meter.create_observable_counter if family.type == "counter" else meter.create_observable_gauge
            make(family.name, [self._reads(family.name)], description=family.documentation)
        meter.create_observable_counter(
            "penstock_export_lost", [self._read_lost], description="Events and traces that a receiver did not take."
        )
        self._batches = meter.create_histogram(
            "penstock_batch_duration_seconds", description="How long a batch took.", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self._steps = meter.create_histogram(
            "penstock_batch_step_duration_seconds",
            description="How long a step of a batch took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def measure(self, sent: _Sent) -> None:
        """Take the durations of a batch."""
        if not isinstance(sent, MeasuredBatch) or not sent.steps:
            return
        own = {"pipeline": self._pipeline}
        self._batches.record(sent.duration_ms / 1000, own)
        for step in sent.steps:
            named = own if step.kind is not StepKind.PUBLISH or step.sink is None else {**own, "sink": str(step.sink)}
            self._steps.record(step.duration_ms / 1000, {**named, "step": step.kind.name.lower()})

    def close(self, *, until_s: float) -> None:
        """Send the newest values. Half of the time is for a last look at the pipeline, which waits for places that are away."""
        looking = threading.Thread(target=self._newest_look, daemon=True)
        looking.start()
        looking.join(max(0.0, until_s - time.monotonic()) / 2)
        self._is_closing = True
        self._provider.shutdown()

    def _reads(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            look = self._newest_look()
            found = StatusCollector(lambda: [] if look is None else [look]).collect()
            samples = chain.from_iterable(family.samples for family in found if family.name == name)
            return [Observation(float(sample.value), dict(sample.labels)) for sample in samples]

        return read

    def _newest_look(self) -> Look | None:
        """Return a look at the pipeline that all metrics of one time share. None if there is none yet and the run has ended."""
        if self._is_closing:
            return self._look
        if self._look is None or time.monotonic() - self._looked_at_s > _SAME_LOOK_S:
            self._look = look_at(self._status)
            self._looked_at_s = time.monotonic()
        return self._look

    def _read_lost(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(lost, {"pipeline": self._pipeline, "receiver": name}) for name, lost in self._lost().items()]


def _resource(pipeline: str) -> Resource:
    """Return what all spans and metrics are of; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have precedence."""
    own: dict[str, str | int] = {
        "service.name": pipeline,
        "service.version": _version(),
        "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    return Resource.create({**own}).merge(OTELResourceDetector().detect())


def _connection(settings: OpenTelemetry, path: str) -> Mapping[str, Any]:
    """Return what an exporter of one signal is made with; without an endpoint, it takes that from the environment."""
    return {
        "endpoint": None if settings.endpoint is None else f"{settings.endpoint.rstrip('/')}/{path}",
        "certificate_file": settings.ca_file,
        "client_key_file": settings.key_file,
        "client_certificate_file": settings.certificate_file,
        "headers": dict(settings.headers) or None,
        "timeout": settings.timeout / 1000,
    }


def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:  # run from a clone
        return "unknown"


def _known(values: Mapping[str, _Value | None]) -> Mapping[str, _Value]:
    return {name: value for name, value in values.items() if value is not None}


def _ns(ms: int) -> int:
    return ms * 1_000_000
