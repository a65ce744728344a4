"""The start of a pipeline on Spark: the DataFrame, the guarantee, recovery, the query."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from penstock.core.guarantee import too_weak
from penstock.core.model import Guarantee, SourceName, new_nonce
from penstock.errors import Usage
from penstock.observe.export.observation import Observation
from penstock.protocols import ProjectsRows
from penstock.run.assembly import DeliveryPlan, checkpoint_of, sinks_of
from penstock.run.chain.opening import read_chained
from penstock.run.delivery import Delivery
from penstock.run.kafka_input import readers, require_first_batch_goes_on
from penstock.run.observing import columns_of
from penstock.run.open_delivery import Observer
from penstock.run.preflight.compare import SeenBySpark, versions_of
from penstock.run.preflight.description import describe
from penstock.run.query import Query, start_streaming
from penstock.run.query_facts import facts_of_pipeline
from penstock.run.required_guarantees import require_demanded, unprotected_sink
from penstock.run.startable import require_compatible
from penstock.source.guarantee import source_claims
from penstock.source.kafka.decode import coded_columns, decode_passes
from penstock.source.naming import naming, require_nameable
from penstock.source.open import open_sources
from penstock.spark.column_name import quoted
from penstock.spec.kafka import Kafka
from penstock.spec.pipeline import PipelineSettings, quarantined, with_rules
from penstock.spec.sink import Console, Memory
from penstock.stage.quarantine import EXPECT, require_read_once
from penstock.transform.apply import apply_transform, travel_by_value
from penstock.transform.plan import PlanNode, plan_of, source_order
from penstock.transform.rules import meeting_rules, require_settings, settings_of_rules
from penstock.transform.selection import selected
from penstock.transform.state_held import state_held

if TYPE_CHECKING:
    from penstock.registry.decoding import DecodePass


def start(
    settings: PipelineSettings,
    plan: DeliveryPlan,
    spark: SparkSession,
    *,
    observers: Sequence[Observer],
    batches: int | None,
    stop_wanted: Callable[[], bool],
    observation: Observation,
) -> Query:
    """Start a pipeline's query, for `Pipeline.start`. Everything that can be refused is refused before Spark plans a batch."""
    decoding = decode_passes(spark, settings.sources)
    frame, sources = frame_of(settings, spark, modules=plan.modules, decoding=decoding)
    facts = facts_of_pipeline(settings, frame, spark)
    claims = require_demanded(facts, plan)
    travel_by_value()
    seen = seen_by_spark(frame, tuple(sources), query=facts.plan)
    if settings.named_sources:
        require_nameable(seen.order, settings.sources)
    require_compatible(settings, plan, seen=seen)
    plan = _of_this_run(settings, plan, seen.order)
    description = describe(settings, modules=plan.modules, versions=versions_of(seen.version), state=seen.state)
    require_read_once(quarantined(settings), plan.sources)
    require_read_once(with_rules(settings), plan.sources, setting=EXPECT)
    found = readers(sources, settings)
    if found:
        require_first_batch_goes_on(checkpoint_of(plan), plan.sources, found)
    schemas = {SourceName(name): sources[SourceName(name)].schema.json() for name in with_rules(settings)}
    described = replace(plan, decoding=decoding, source_schemas=schemas, description=description, claims=claims)
    delivery = Delivery.of_plan(described)
    delivery.observation = observation
    if observation.is_on:
        columns = {name: columns_of(source.schema) for name, source in sources.items()}
        ends = settings.trigger.available_now is not None or settings.trigger.once is not None
        observation.describe(source_columns=columns, is_bounded=ends, spark_version=spark.version)
    if not settings.trigger.batches_have_identity:
        return start_unprotected(settings, frame, delivery)
    writer = _configured(frame.writeStream, settings, name=settings.pipeline)
    return delivery.start_checked(writer, observers=observers, batches=batches, stop_wanted=stop_wanted)


def seen_by_spark(frame: DataFrame, names: Sequence[SourceName], *, query: PlanNode | None = None) -> SeenBySpark:
    """Return what a comparison with the last run needs of the rows and of the plan `query`, which is read if it is not given."""
    query = plan_of(frame) if query is None else query
    version = frame.sparkSession.version
    return SeenBySpark(order=source_order(query, names), state=state_held(query), version=version, schema=frame.schema.json())


def _configured(writer: DataStreamWriter, settings: PipelineSettings, *, name: str) -> DataStreamWriter:
    named = writer.queryName(name).outputMode(settings.output_mode)
    return named.trigger(**dict(settings.trigger.spark_arguments()))  # type: ignore[arg-type]


def _of_this_run(settings: PipelineSettings, plan: DeliveryPlan, sources: tuple[SourceName, ...]) -> DeliveryPlan:
    """Return `plan` with `sources`, and with a new checkpoint if a source cannot be read again: no checkpoint continues that."""
    if too_weak(source_claims(settings.sources, {}), Guarantee.EXACTLY_ONCE):
        place = settings.checkpoint
        own = place.model_copy(update={"url": f"{place.url}/run-{new_nonce()}"})
        settings = settings.model_copy(update={"checkpoint": own})
    return replace(plan, settings=settings, sources=sources)


def frame_of(
    settings: PipelineSettings,
    spark: SparkSession,
    *,
    modules: Path | None,
    decoding: "Mapping[SourceName, DecodePass] | None" = None,
) -> tuple[DataFrame, Mapping[SourceName, DataFrame]]:
    """Return the DataFrame that is delivered, and those of the sources below it. `decoding`: see `open_sources`. Raises Usage."""
    before = settings_of_rules(spark) if with_rules(settings) else {}
    with naming(spark, named=settings.named_sources):
        sources = open_sources(
            spark,
            settings.sources,
            decoding=decoding,
            pipeline=settings.pipeline,
            row_filter=meeting_rules,
            open_chained=partial(read_chained, pipeline=settings.pipeline),
        )
    made = apply_transform(spark, sources, settings.transform, modules=modules)
    if before:
        require_settings(spark, before)  # I8
    return encoded(settings, made), sources


def encoded(settings: PipelineSettings, frame: DataFrame) -> DataFrame:
    """Return the rows that the sinks get. The registry is asked now for the schemas, which stay the same until the next start.

    Rows are encoded before they are staged, so everything that is decided holds the encoded bytes: a batch that is published
    again is the same, and `verify` compares bytes. Raises Usage (no such subject, a column that is not of its schema's type),
    Retryable, Failed, DependencyMissing.
    """
    for name, sink in settings.sinks.items():
        if isinstance(sink, Kafka) and sink.encode is not None:  # the settings were checked: all sinks have the same, or none
            coded = coded_columns(sink.encode, sink.topic, who=f"Sink {name!r} encodes")
            from penstock.registry.encoding import EncodePass, schema_after_encoding

            schema = StructType.fromJson(json.loads(schema_after_encoding(frame.schema.jsonValue(), coded)))
            return frame.mapInArrow(EncodePass(coded=coded), schema)
    return frame


_OF_BOTH_CLIENTS: Final = frozenset({
    "security.protocol", "sasl.mechanism", "sasl.kerberos.service.name", "ssl.endpoint.identification.algorithm",
    "client.id", "client.dns.lookup", "compression.type", "linger.ms",
})  # fmt: skip
"""Producer properties of Kafka with the same name and meaning in librdkafka and in Java."""


def start_unprotected(settings: PipelineSettings, frame: DataFrame, delivery: Delivery) -> Query:
    """Start a continuous or real-time query: without batches to recognise, Spark's own sink takes its rows, at least once.

    Raises GuaranteeTooWeak for other sinks, Usage for what Spark's sink cannot take.
    """
    name, sink = unprotected_sink(settings)
    frame = selected(frame, sink)
    if isinstance(sink, Kafka):
        writer = _into_topic(name, sink, frame, delivery)
    elif isinstance(sink, Console):
        writer = frame.writeStream.format("console").option("numRows", sink.rows)
        writer = writer.option("truncate", str(sink.truncate > 0).lower())
    else:
        writer = frame.writeStream.format("memory")
    writer = _configured(writer, settings, name=name if isinstance(sink, Memory) else settings.pipeline)
    return Query(start_streaming(writer, delivery.plan), delivery, delivery.observation)


def _into_topic(name: str, sink: Kafka, frame: DataFrame, delivery: Delivery) -> DataStreamWriter:
    own = [each.own_rows(frame.schema.json()) for each in sinks_of(delivery.plan) if isinstance(each, ProjectsRows)]
    for made in (rows for rows in own if rows is not None):
        frame = frame.selectExpr(*(f"{sql} AS {quoted(column)}" for column, sql in made.columns.items()))
    unknown = sorted(sink.options.keys() - _OF_BOTH_CLIENTS)
    if unknown or sink.encode is not None:
        what = f"options.{unknown[0]}" if unknown else "encode"
        raise Usage(
            f"sinks.{name}.{what} is not a setting of Spark's own Kafka sink, into which continuous and real-time queries write.",
            remedy=f"Take it out (it takes {', '.join(sorted(_OF_BOTH_CLIENTS))}), or use trigger processing_time.",
        )
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", sink.bootstrap)
    for key, value in sink.options.items():
        writer = writer.option(f"kafka.{key}", str(value))
    return writer if "topic" in frame.columns else writer.option("topic", sink.topic)
