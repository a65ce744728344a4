"""A Kafka source whose keys and values become typed columns: which schemas they are read by, and the pass over its records."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.errors import DependencyMissing
from penstock.model import SourceName
from penstock.source.kafka.registry_place import place_of
from penstock.spec.kafka_options import single_topic
from penstock.spec.registry import Decode
from penstock.spec.source import Source

if TYPE_CHECKING:
    from penstock.registry.decoding import DecodePass


def decode_passes(sources: Mapping[str, Source]) -> "Mapping[SourceName, DecodePass]":
    """For the sources that decode: the registry is asked now for the schemas to read by.

    Raises Usage (no such subject), Retryable (the registry does not answer), Failed, DependencyMissing.
    """
    decoding = {name: source.decode for name, source in sources.items() if source.decode is not None}
    return {SourceName(name): _decode_pass(name, sources[name], decode) for name, decode in decoding.items()}


def decoded(name: str, frame: DataFrame, decode_pass: "DecodePass") -> DataFrame:
    """The source's records, decoded. Raises Usage for a schema without type."""
    from penstock.registry.decoding import schema_after  # noqa: PLC0415 - an extra

    schema = StructType.fromJson(json.loads(schema_after(frame.schema.jsonValue(), decode_pass.coded)))
    return frame.mapInArrow(decode_pass, schema).alias(name)


def _decode_pass(name: str, source: Source, decode: Decode) -> "DecodePass":
    try:
        from penstock.registry.client import Registry as Client  # noqa: PLC0415 - an extra
        from penstock.registry.decoding import Coded, DecodePass  # noqa: PLC0415
    except ImportError as cause:
        raise DependencyMissing(
            f"Source {name!r} decodes by a schema registry with the package {cause.name}, which is not installed.",
            remedy="Install it on the driver and on every executor: pip install 'penstock[registry]'.",
        ) from cause
    place = place_of(decode.registry)
    client, topic = Client(place), single_topic(source.options)
    coded = []
    for column, settings in decode.columns.items():
        subject = settings.subject or f"{topic}-{column}"
        found = client.of_subject(subject, settings.version)
        coded.append(Coded(column=column, format=settings.format, subject=subject, schema=found))
    return DecodePass(source=name, place=place, coded=tuple(coded), passes_over=decode.undecodable == "quarantine")
