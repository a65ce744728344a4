"""Rows whose columns are written by schemas of a registry, as a sink's `encode` says, before any sink gets them."""

import json
from typing import TYPE_CHECKING

from penstock.source.kafka.registry_place import coded_columns
from penstock.spec.kafka import Kafka
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.registry import Encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def encoded(settings: PipelineSettings, frame: "DataFrame") -> "DataFrame":
    """The rows that the sinks get. The registry is asked now for the schemas, which stay the same until the next start.

    Encoded before they are staged, they are bytes in everything that is decided: a batch that is published again is the same,
    and `verify` compares bytes. Raises Usage (no such subject, a column that is not of its schema's type), Retryable, Failed,
    DependencyMissing.
    """
    wanted = _wanted(settings)
    if wanted is None:
        return frame
    from pyspark.sql.types import StructType

    name, sink, encode = wanted
    coded = coded_columns(encode, sink.topic, who=f"Sink {name!r} encodes")
    from penstock.registry.encoding import EncodePass, schema_after_encoding

    schema = StructType.fromJson(json.loads(schema_after_encoding(frame.schema.jsonValue(), coded)))
    return frame.mapInArrow(EncodePass(coded=coded), schema)


def _wanted(settings: PipelineSettings) -> "tuple[str, Kafka, Encode] | None":
    """Of the first sink that has it: that all have the same is checked with the settings."""
    found = ((name, sink, sink.encode) for name, sink in settings.sinks.items() if isinstance(sink, Kafka))
    return next(((name, sink, encode) for name, sink, encode in found if encode is not None), None)
