"""Encoding of columns by schemas of a registry, as a sink's `encode` says, before any sink gets the rows."""

import json
from typing import TYPE_CHECKING

from penstock.source.kafka.registry_place import coded_columns
from penstock.spec.kafka import Kafka
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.registry import Encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def encoded(settings: PipelineSettings, frame: "DataFrame") -> "DataFrame":
    """Return the rows that the sinks get. The registry is asked now for the schemas, which stay the same until the next start.

    Rows are encoded before they are staged, so everything that is decided holds the encoded bytes: a batch that is published
    again is the same, and `verify` compares bytes. Raises Usage (no such subject, a column that is not of its schema's type),
    Retryable, Failed, DependencyMissing.
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
    """Return the first sink with `encode`. The settings were checked to have the same `encode` in all sinks."""
    found = ((name, sink, sink.encode) for name, sink in settings.sinks.items() if isinstance(sink, Kafka))
    return next(((name, sink, encode) for name, sink, encode in found if encode is not None), None)
