"""The start of continuous and real-time queries: without batches to recognise, Spark's sinks take their rows, at least once."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.errors import Usage
from penstock.protocols import ProjectsRows
from penstock.run.assembly import sinks_of
from penstock.run.delivery import Delivery
from penstock.run.query import Query, start_streaming
from penstock.run.required_guarantees import batches_without_identity
from penstock.spark.column_name import quoted
from penstock.spec.kafka import Kafka
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.sink import Console, Memory

_OF_BOTH_CLIENTS: Final = frozenset({
    "security.protocol", "sasl.mechanism", "sasl.kerberos.service.name", "ssl.endpoint.identification.algorithm",
    "client.id", "client.dns.lookup", "compression.type", "linger.ms",
})  # fmt: skip
"""Producer properties of Kafka with the same name and meaning in librdkafka and in Java."""


def start_unprotected(settings: PipelineSettings, frame: DataFrame, delivery: Delivery) -> Query:
    """Start the query into its only sink. Raises GuaranteeTooWeak for other sinks, Usage for what Spark's sink cannot take."""
    name, sink = next(iter(settings.sinks.items()))
    if len(settings.sinks) != 1 or not isinstance(sink, Console | Kafka | Memory):
        raise batches_without_identity()
    if settings.trigger.real_time is not None:
        _require_real_time(settings, sink)
    query_name = name if isinstance(sink, Memory) else settings.pipeline
    if isinstance(sink, Kafka):
        writer = _into_topic(name, sink, frame, delivery)
    elif isinstance(sink, Console):
        writer = frame.writeStream.format("console").option("numRows", sink.rows)
        writer = writer.option("truncate", str(sink.truncate > 0).lower())
    else:
        writer = frame.writeStream.format("memory")
    writer = writer.queryName(query_name).outputMode(settings.output_mode)
    writer = writer.trigger(**dict(settings.trigger.spark_arguments()))  # type: ignore[arg-type]
    return Query(start_streaming(writer, delivery.plan), delivery)


def _require_real_time(settings: PipelineSettings, sink: Console | Kafka | Memory) -> None:
    if isinstance(sink, Memory):
        raise Usage(
            "Trigger real_time: expected a sink of type console or kafka, found memory, which Spark does not fill in real time.",
            remedy="Take type: kafka or console, or use trigger continuous.",
        )
    if settings.output_mode != "update":
        raise Usage(
            f"Trigger real_time sends rows when they change: expected output_mode update, found {settings.output_mode}.",
            remedy="Write `output_mode: update`; without an operator that keeps state every row is sent once, as in append.",
        )


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
