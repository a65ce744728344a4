"""Starting a pipeline on Spark: frame, guarantee, recovery, query."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.claim import too_weak
from penstock.model import Guarantee, SourceName, new_nonce
from penstock.run.assembly import DeliveryPlan, checkpoint_of
from penstock.run.delivery import Delivery
from penstock.run.demands import batches_without_identity, require_demanded
from penstock.run.kafka_readers import readers, require_first_batch_goes_on
from penstock.run.open_delivery import Observer
from penstock.run.quarantine import require_read_once
from penstock.run.query import Query, start_streaming
from penstock.run.query_facts import facts_of_pipeline
from penstock.source.guarantee import source_claims
from penstock.source.kafka.decode import decode_passes
from penstock.spec.pipeline import quarantined
from penstock.spec.sink import Console
from penstock.transform.plan import plan_of, source_order
from penstock.transform.python import travel_by_value

if TYPE_CHECKING:
    from penstock.run.pipeline import Pipeline


def start(pipeline: "Pipeline", spark: SparkSession, *, observers: Sequence[Observer], batches: int | None) -> Query:
    """Called by `Pipeline.start`. Everything that can be refused is refused before Spark plans a batch."""
    decoding = decode_passes(pipeline.settings.sources)
    frame, sources = pipeline.frame(spark, decoding=decoding)
    require_demanded(facts_of_pipeline(pipeline.settings, frame, spark), pipeline.plan)
    travel_by_value()
    plan = _plan(pipeline, tuple(source_order(plan_of(frame), tuple(sources))))
    require_read_once(quarantined(pipeline.settings), plan.sources)
    found = readers(sources, pipeline.settings)
    if found:
        require_first_batch_goes_on(checkpoint_of(plan), plan.sources, found)
    delivery = Delivery.of_plan(replace(plan, decoding=decoding))
    writer = _writer(pipeline, frame)
    if not pipeline.settings.trigger.batches_have_identity:
        return _start_unprotected(pipeline, writer, delivery)
    return delivery.start_checked(writer, observers=observers, batches=batches)


def _writer(pipeline: "Pipeline", frame: DataFrame) -> DataStreamWriter:
    settings = pipeline.settings
    writer = frame.writeStream.queryName(settings.pipeline).outputMode(settings.output_mode)
    return writer.trigger(**dict(settings.trigger.spark_arguments()))  # type: ignore[arg-type]


def _plan(pipeline: "Pipeline", sources: tuple[SourceName, ...]) -> DeliveryPlan:
    """The plan; a source that cannot be read again cannot go on from a checkpoint either, so each run gets a new one."""
    settings = pipeline.settings
    if too_weak(source_claims(settings.sources, {}), Guarantee.EXACTLY_ONCE):
        place = settings.checkpoint
        own = place.model_copy(update={"url": f"{place.url}/run-{new_nonce()}"})
        settings = settings.model_copy(update={"checkpoint": own})
    return replace(pipeline.plan, settings=settings, sources=sources)


def _start_unprotected(pipeline: "Pipeline", writer: DataStreamWriter, delivery: Delivery) -> Query:
    """Continuous and real-time queries have no batches to recognise: Spark's own console is all they can be given."""
    sinks = list(pipeline.settings.sinks.values())
    if len(sinks) != 1 or not isinstance(sinks[0], Console):
        raise batches_without_identity()
    console = writer.format("console").option("numRows", sinks[0].rows).option("truncate", str(sinks[0].truncate > 0).lower())
    return Query(start_streaming(console, delivery.plan), delivery)
