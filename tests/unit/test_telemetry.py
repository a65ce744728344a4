"""Traces and metrics by OTLP, as a collector decodes them from the bytes of the requests."""

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.unit.receivers import Receiver, Request, closed_url, receiving

from penstock.core.model import BatchId, Generation, SinkName
from penstock.errors import PublishFailed
from penstock.observe.batch_record import DeliveryRecord, SparkRecord
from penstock.observe.export.observation import Observation
from penstock.observe.export.telemetry import Telemetry
from penstock.observe.progress import BatchProgress, SinkProgress
from penstock.run.pipeline import Pipeline
from penstock.spec.export import OpenTelemetry
from penstock.spec.pipeline import PipelineSettings

LAKE, ORDERS, TOPIC = SinkName("lake"), SinkName("orders"), SinkName("topic")
BEGAN_MS = 1_700_000_000_000


def settings(home: Path, *only: str) -> PipelineSettings:
    sinks: dict[str, Any] = {
        "lake": {"type": "parquet", "accounts": {"a": str(home / "lake")}},
        "orders": {"type": "postgres", "url": "postgresql://me:geheim-pw@db.example.com/shop", "table": "orders"},
        "topic": {"type": "kafka", "bootstrap": "b1:9092,b2:9092", "topic": "out"},
    }
    sinks = {name: sink for name, sink in sinks.items() if not only or name in only}
    return PipelineSettings(pipeline="flights", home=home / "state", sources={"s": {"format": "rate"}}, sinks=sinks)


def telemetry(home: Path, given: OpenTelemetry, *only: str) -> Telemetry:
    made = settings(home)
    return Telemetry(
        "flights", given, sinks=made.sinks, status=Pipeline(settings(home, *only)).status_reader(), lost=lambda: {"pager": 3}
    )


def deliver(told: Observation, number: int, **more: Any) -> None:
    record = DeliveryRecord(
        generation=Generation(3),
        batch_id=BatchId(number),
        at_ms=BEGAN_MS + 600,
        rows_read=12,
        stage_ms=200,
        decide_ms=50,
        publish_ms=100,
        sink_ms={LAKE: 100, ORDERS: 40, TOPIC: 30},
    )
    told.record(record)
    shares = {LAKE: SinkProgress(rows=9, files=2, bytes=900), ORDERS: SinkProgress(rows=9), TOPIC: SinkProgress(rows=7)}
    told.batch(BatchProgress(batch_id=number, rows_out=9, rows_read=12, sinks=shares, path="driver", **more), {})


def measure(told: Observation, number: int) -> None:
    steps = {"fetch_ms": 10, "offset_log_ms": 20, "plan_ms": 30, "execute_ms": 400, "commit_log_ms": 5, "total_ms": 470}
    told.record(SparkRecord(generation=Generation(3), batch_id=BatchId(number), began_ms=BEGAN_MS, **steps))


def decoded(request: Request) -> bytes:
    return gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body


def resource_spans(receiver: Receiver) -> Iterator[Any]:
    for request in receiver.requests:
        if request.path == "/v1/traces":
            assert request.headers["content-type"] == "application/x-protobuf"
            yield from ExportTraceServiceRequest.FromString(decoded(request)).resource_spans


def spans(receiver: Receiver) -> list[Span]:
    return [span for each in resource_spans(receiver) for scope in each.scope_spans for span in scope.spans]


def values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@pytest.fixture(name="told")
def _told(tmp_path: Path) -> Iterator[tuple[Observation, Receiver]]:
    with receiving() as receiver:
        given = OpenTelemetry(endpoint=f"{receiver.url}/", metrics=False, headers={"X-Api-Key": "geheim-key"})
        yield Observation([telemetry(tmp_path, given)]), receiver


def test_a_batch_is_a_trace_with_a_span_for_each_step_and_sink(told: tuple[Observation, Receiver]) -> None:
    observation, receiver = told
    observation.opened(Generation(3), {})
    deliver(observation, 7)
    measure(observation, 7)
    observation.ended(None)
    found = {span.name: span for span in spans(receiver)}
    root = found.pop("deliver batch")
    assert not root.parent_span_id
    assert {span.parent_span_id for span in found.values()} == {root.span_id}
    assert {span.trace_id for span in found.values()} == {root.trace_id}
    shown = {name: (_ms(span.start_time_unix_nano), _ms(span.end_time_unix_nano)) for name, span in found.items()}
    assert shown == {
        "fetch offsets": (0, 10),
        "write offset log": (10, 30),
        "plan": (30, 60),
        "stage": (60, 260),
        "wait or other": (260, 310),
        "decide": (310, 360),
        "publish lake": (360, 460),
        "publish orders": (360, 400),
        "publish topic": (360, 390),
        "write commit log": (460, 465),
    }
    assert (_ms(root.start_time_unix_nano), _ms(root.end_time_unix_nano)) == (0, 465)
    assert values(root.attributes) == {
        "penstock.pipeline": "flights",
        "penstock.batch.id": 7,
        "penstock.generation": 3,
        "penstock.batch.rows": 9,
        "penstock.batch.rows_read": 12,
        "penstock.batch.path": "driver",
    }
    assert receiver.requests[0].headers["x-api-key"] == "geheim-key"


def _ms(at_ns: int) -> int:
    return at_ns // 1_000_000 - BEGAN_MS


def test_attributes_are_those_of_the_semantic_conventions(told: tuple[Observation, Receiver]) -> None:
    observation, receiver = told
    deliver(observation, 7)
    observation.ended(None)
    found = {span.name: span for span in spans(receiver)}
    orders, topic, lake = (found[f"publish {name}"] for name in ("orders", "topic", "lake"))
    own = {"penstock.step": "publish", "penstock.sink": "orders", "penstock.sink.type": "postgres", "penstock.sink.rows": 9}
    assert values(orders.attributes) == {
        **own,
        "db.system.name": "postgresql",
        "db.namespace": "shop",
        "db.collection.name": "orders",
        "db.operation.batch.size": 9,
        "server.address": "db.example.com",
        "server.port": 5432,
    }
    wanted = {"messaging.system": "kafka", "messaging.destination.name": "out", "messaging.batch.message_count": 7}
    assert wanted.items() <= values(topic.attributes).items()
    assert (orders.kind, topic.kind, lake.kind) == (Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_INTERNAL)
    assert {"penstock.sink.files": 2, "penstock.sink.bytes": 900}.items() <= values(lake.attributes).items()
    assert all(b"geheim" not in decoded(request) for request in receiver.requests)


def test_the_service_is_the_pipeline_unless_the_environment_names_it(
    told: tuple[Observation, Receiver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation, receiver = told
    monkeypatch.setenv("OTEL_SERVICE_NAME", "loader")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    other = Observation([telemetry(tmp_path, OpenTelemetry(metrics=False))])
    for each in (observation, other):
        deliver(each, 1)
        each.ended(None)
    assert [values(each.resource.attributes)["service.name"] for each in resource_spans(receiver)] == ["flights", "loader"]


def test_what_spark_tells_late_or_never_is_not_waited_for(told: tuple[Observation, Receiver]) -> None:
    observation, receiver = told
    measure(observation, 1)
    for number in range(1, 8):
        deliver(observation, number)
    deliver(observation, 3, already=True)
    observation.ended(None)
    roots = [span for span in spans(receiver) if not span.parent_span_id]
    found = sorted((values(span.attributes)["penstock.batch.id"], span.name) for span in roots)
    assert found == sorted([*((number, "deliver batch") for number in range(1, 8)), (3, "replay batch")])


def test_the_error_that_ends_a_run_is_a_span_without_its_message(told: tuple[Observation, Receiver]) -> None:
    observation, receiver = told
    observation.opened(Generation(3), {})
    observation.ended(PublishFailed("Row (7, 'Ada') does not fit.", remedy="Drop it."))
    (span,) = spans(receiver)
    assert (span.name, span.status.code) == ("end run", 2)
    wanted = {"error.type": "PublishFailed", "penstock.exit_code": 1, "penstock.generation": 3, "penstock.pipeline": "flights"}
    assert values(span.attributes) == wanted
    assert b"Ada" not in decoded(receiver.requests[0])


def test_a_collector_that_is_away_costs_traces_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exporter = telemetry(tmp_path, OpenTelemetry(endpoint=closed_url(), timeout="20ms", metrics=False))
    observation = Observation([exporter])
    for number in range(5):
        deliver(observation, number)
        measure(observation, number)
    observation.ended(None)
    assert exporter.queue.lost == 5
    assert "opentelemetry: 5 of what was to be sent was dropped or not taken." in caplog.text


def test_a_collector_that_hangs_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.observe.export.observation.FLUSH_S", 0.05)
    with receiving(hangs=True) as receiver:
        exporter = telemetry(tmp_path, OpenTelemetry(endpoint=receiver.url, timeout="1h"), "lake")
        observation = Observation([exporter])
        deliver(observation, 0)
        measure(observation, 0)
        receiver.wait_for(1)
        for number in range(1, 2000):
            deliver(observation, number)
            measure(observation, number)
        observation.ended(None)
        assert exporter.queue.lost == 2000


def metrics(receiver: Receiver) -> Mapping[str, Any]:
    requests = [ExportMetricsServiceRequest.FromString(decoded(each)) for each in receiver.requests if each.path == "/v1/metrics"]
    newest = requests[-1].resource_metrics
    return {metric.name: metric for each in newest for scope in each.scope_metrics for metric in scope.metrics}


def test_metrics_are_those_of_prometheus_and_the_steps_of_batches(tmp_path: Path) -> None:
    with receiving() as receiver:
        observation = Observation([telemetry(tmp_path, OpenTelemetry(endpoint=receiver.url, traces=False), "lake")])
        for number in range(2):
            deliver(observation, number)
            measure(observation, number)
        observation.ended(None)
        found = metrics(receiver)
    (up,) = found["penstock_up"].gauge.data_points
    assert (values(up.attributes), up.as_double) == ({"pipeline": "flights"}, 1.0)
    states = {values(point.attributes)["state"]: point.as_double for point in found["penstock_health"].gauge.data_points}
    assert states == {"new": 1.0, "ok": 0.0, "replay": 0.0, "conflict": 0.0}
    (lost,) = found["penstock_export_lost"].sum.data_points
    assert (values(lost.attributes)["receiver"], lost.as_int, found["penstock_export_lost"].sum.is_monotonic) == (
        "pager",
        3,
        True,
    )
    (whole,) = found["penstock_batch_duration_seconds"].histogram.data_points
    assert (whole.count, whole.sum) == (2, pytest.approx(0.93))
    steps = {
        (values(point.attributes)["step"], values(point.attributes).get("sink")): point.sum
        for point in found["penstock_batch_step_duration_seconds"].histogram.data_points
    }
    assert steps["publish", "orders"] == pytest.approx(0.08)
    assert steps["stage", None] == pytest.approx(0.4)
    assert not any(request.path == "/v1/traces" for request in receiver.requests)
