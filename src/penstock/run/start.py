"""The start of a pipeline on Spark: frame, guarantee, recovery, query."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.core.guarantee import too_weak
from penstock.core.model import Guarantee, SourceName, new_nonce
from penstock.run.assembly import DeliveryPlan, checkpoint_of
from penstock.run.continuous import start_unprotected
from penstock.run.delivery import Delivery
from penstock.run.frame import frame_of
from penstock.run.kafka_readers import readers, require_first_batch_goes_on
from penstock.run.open_delivery import Observer
from penstock.run.query import Query
from penstock.run.query_facts import facts_of_pipeline
from penstock.run.required_guarantees import require_demanded
from penstock.source.guarantee import source_claims
from penstock.source.kafka.decode import decode_passes
from penstock.spec.pipeline import PipelineSettings, quarantined
from penstock.stage.quarantine import require_read_once
from penstock.transform.plan import plan_of, source_order
from penstock.transform.python import travel_by_value


def start(
    settings: PipelineSettings, plan: DeliveryPlan, spark: SparkSession, *, observers: Sequence[Observer], batches: int | None
) -> Query:
    """Start a pipeline's query, for `Pipeline.start`. Everything that can be refused is refused before Spark plans a batch."""
    decoding = decode_passes(settings.sources)
    frame, sources = frame_of(settings, spark, modules=plan.modules, decoding=decoding)
    require_demanded(facts_of_pipeline(settings, frame, spark), plan)
    travel_by_value()
    plan = _of_this_run(settings, plan, tuple(source_order(plan_of(frame), tuple(sources))))
    require_read_once(quarantined(settings), plan.sources)
    found = readers(sources, settings)
    if found:
        require_first_batch_goes_on(checkpoint_of(plan), plan.sources, found)
    delivery = Delivery.of_plan(replace(plan, decoding=decoding))
    if not settings.trigger.batches_have_identity:
        return start_unprotected(settings, frame, delivery)
    return delivery.start_checked(_writer(settings, frame), observers=observers, batches=batches)


def _writer(settings: PipelineSettings, frame: DataFrame) -> DataStreamWriter:
    writer = frame.writeStream.queryName(settings.pipeline).outputMode(settings.output_mode)
    return writer.trigger(**dict(settings.trigger.spark_arguments()))  # type: ignore[arg-type]


def _of_this_run(settings: PipelineSettings, plan: DeliveryPlan, sources: tuple[SourceName, ...]) -> DeliveryPlan:
    """Return the plan. A source that cannot be read again cannot go on from a checkpoint either, so each run gets a new one."""
    if too_weak(source_claims(settings.sources, {}), Guarantee.EXACTLY_ONCE):
        place = settings.checkpoint
        own = place.model_copy(update={"url": f"{place.url}/run-{new_nonce()}"})
        settings = settings.model_copy(update={"checkpoint": own})
    return replace(plan, settings=settings, sources=sources)
