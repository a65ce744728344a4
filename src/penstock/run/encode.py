"""Rows whose columns are written by schemas of a registry, as a sink's `encode` says, before any sink gets them."""

import json
from typing import TYPE_CHECKING

from penstock.errors import DependencyMissing
from penstock.source.kafka.registry_place import place_of
from penstock.spec.kafka import Kafka
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.registry import Encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.registry.decoding import Coded


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

    coded = _coded(*wanted)
    from penstock.registry.encoding import EncodePass, schema_after_encoding

    schema = StructType.fromJson(json.loads(schema_after_encoding(frame.schema.jsonValue(), coded)))
    return frame.mapInArrow(EncodePass(coded=coded), schema)


def _wanted(settings: PipelineSettings) -> "tuple[str, Kafka, Encode] | None":
    """Of the first sink that has it: that all have the same is checked with the settings."""
    found = ((name, sink, sink.encode) for name, sink in settings.sinks.items() if isinstance(sink, Kafka))
    return next(((name, sink, encode) for name, sink, encode in found if encode is not None), None)


def _coded(name: str, sink: Kafka, encode: Encode) -> "tuple[Coded, ...]":
    try:
        from penstock.registry.client import Registry
        from penstock.registry.decoding import Coded
    except ImportError as cause:
        raise DependencyMissing(
            f"Sink {name!r} encodes by a schema registry with the package {cause.name}, which is not installed.",
            remedy="Install it on the driver and on every executor: pip install 'penstock[registry]'.",
        ) from cause
    client, coded = Registry(place_of(encode.registry)), []
    for column, each in encode.columns.items():
        subject = each.subject or f"{sink.topic}-{column}"
        found = client.of_subject(subject, each.version)
        coded.append(Coded(column=column, format=each.format, subject=subject, schema=found))
    return tuple(coded)
