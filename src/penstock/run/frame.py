"""The Spark session of a pipeline file, and the DataFrame that its sources, its transform and `encode` make."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.core.model import SourceName
from penstock.run.redaction import secrets_of
from penstock.run.session import session
from penstock.source.kafka.decode import coded_columns
from penstock.source.kafka.options import is_kafka
from penstock.source.open import open_sources
from penstock.spec.kafka import Kafka
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.registry import Encode
from penstock.transform.apply import apply_transform

if TYPE_CHECKING:
    from penstock.registry.decoding import DecodePass


def session_of(settings: PipelineSettings) -> SparkSession:
    """Return the active Spark session, or a new one with the settings of the file and its log in `<home>/spark.log`."""
    readers = {source.reader for source in settings.sources.values() if is_kafka(source)}
    return session(
        app=settings.pipeline,
        master=settings.spark.master,
        conf=settings.spark.conf,
        packages=settings.spark.packages,
        log=Path(settings.home) / "spark.log",
        connector="needed" if "spark" in readers else "wanted" if "auto" in readers else "none",
        secret_options=secrets_of(settings),
    )


def frame_of(
    settings: PipelineSettings,
    spark: SparkSession,
    *,
    modules: Path | None,
    decoding: "Mapping[SourceName, DecodePass] | None" = None,
) -> tuple[DataFrame, Mapping[SourceName, DataFrame]]:
    """Return the DataFrame that is delivered, and those of the sources below it. `decoding`: see `open_sources`. Raises Usage."""
    sources = open_sources(spark, settings.sources, decoding=decoding)
    return _encoded(settings, apply_transform(spark, sources, settings.transform, modules=modules)), sources


def _encoded(settings: PipelineSettings, frame: DataFrame) -> DataFrame:
    """Return the rows that the sinks get. The registry is asked now for the schemas, which stay the same until the next start.

    Rows are encoded before they are staged, so everything that is decided holds the encoded bytes: a batch that is published
    again is the same, and `verify` compares bytes. Raises Usage (no such subject, a column that is not of its schema's type),
    Retryable, Failed, DependencyMissing.
    """
    wanted = _encoding(settings)
    if wanted is None:
        return frame
    name, sink, encode = wanted
    coded = coded_columns(encode, sink.topic, who=f"Sink {name!r} encodes")
    from penstock.registry.encoding import EncodePass, schema_after_encoding

    schema = StructType.fromJson(json.loads(schema_after_encoding(frame.schema.jsonValue(), coded)))
    return frame.mapInArrow(EncodePass(coded=coded), schema)


def _encoding(settings: PipelineSettings) -> "tuple[str, Kafka, Encode] | None":
    """Return the first sink with `encode`. The settings were checked to have the same `encode` in all sinks."""
    found = ((name, sink, sink.encode) for name, sink in settings.sinks.items() if isinstance(sink, Kafka))
    return next(((name, sink, encode) for name, sink, encode in found if encode is not None), None)
