"""`penstock explain`: how a batch of this pipeline will go, before one runs."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from penstock.core.model import SinkName, SourceName
from penstock.run.assembly import DeliveryPlan, sinks_of
from penstock.run.connect import is_of_client
from penstock.run.frame import frame_of
from penstock.run.request_costs import Costs, batches_per_day, costs_of
from penstock.spec.pipeline import PipelineSettings, without_ledger
from penstock.stage.path import DRIVER_BYTES, DRIVER_ROWS
from penstock.support.secret import redact
from penstock.transform.operators import stateful_operators
from penstock.transform.plan import plan_of, source_order

AT_ONCE = "before Spark goes on with the next batch"
_OF_SPARK: Mapping[str, str] = {"publish": "Spark's own sink of that type: after a crash rows come again"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How one batch will go. `scans` counts how often each source is read per batch: once, unless the transform names it again.

    `batches_per_day` is None where the trigger sets no interval, `costs` where no request is billed.
    """

    pipeline: str
    scans: Mapping[SourceName, int]
    stateful: tuple[str, ...]
    columns: tuple[str, ...]
    path: str
    sinks: Mapping[SinkName, Mapping[str, str]]
    ledger: str
    batches_per_day: int | None
    costs: Costs | None = None
    publishing: str = AT_ONCE


def explain(settings: PipelineSettings, delivery: DeliveryPlan, spark: SparkSession) -> Explanation:
    """Analyse the query and return how a batch will go, for `Pipeline.explain`. Runs nothing. Raises Usage."""
    frame, sources = frame_of(settings, spark, modules=delivery.modules)
    plan = plan_of(frame)
    order = source_order(plan, tuple(sources))
    alone = without_ledger(settings)
    stateful = tuple(operator.name for operator in stateful_operators(plan))
    return Explanation(
        pipeline=settings.pipeline,
        scans={name: sum(scan.partition("#")[0] == name for scan in order) for name in sources},
        stateful=stateful,
        columns=tuple(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields),
        path=_path(stateful=bool(stateful)) if alone is None else alone,
        sinks={sink.name: sink.describe() if alone is None else _OF_SPARK for sink in sinks_of(delivery)},
        ledger="one append per batch: " + redact(settings.ledger.url) if alone is None else "no entries",
        batches_per_day=batches_per_day(settings.trigger.processing_time),
        costs=costs_of(delivery, interval_ms=settings.trigger.processing_time),
        publishing=_publishing(spark, behind=settings.publish_behind),
    )


def _publishing(spark: SparkSession, *, behind: bool) -> str:
    return "beside the next batch" if behind and not is_of_client(spark) else AT_ONCE


def _path(*, stateful: bool) -> str:
    if stateful:
        return "tasks stage every batch (the query keeps state)"
    return (
        f"the driver stages a batch after one of at most {DRIVER_ROWS:,} rows and {DRIVER_BYTES >> 20} MiB, "
        "which saves starting Python workers; tasks stage larger ones, and the first"
    )
