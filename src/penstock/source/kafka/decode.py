"""Decodes keys and values of a Kafka source into typed columns, by schemas of a registry."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.core.model import SourceName
from penstock.source.kafka.registry_place import coded_columns, place_of
from penstock.spec.kafka_options import single_topic
from penstock.spec.registry import Decode
from penstock.spec.source import Source

if TYPE_CHECKING:
    from penstock.registry.decoding import DecodePass


def decode_passes(sources: Mapping[str, Source]) -> "Mapping[SourceName, DecodePass]":
    """Return the pass over the records of each source that decodes; the registry is asked now for the schemas to read by.

    Raises Usage (no such subject), Retryable (the registry does not answer), Failed, DependencyMissing.
    """
    decoding = {name: source.decode for name, source in sources.items() if source.decode is not None}
    return {SourceName(name): _decode_pass(name, sources[name], decode) for name, decode in decoding.items()}


def decoded(name: str, frame: DataFrame, decode_pass: "DecodePass") -> DataFrame:
    """Return the source's records, decoded. Raises Usage for a schema without type."""
    from penstock.registry.decoding import schema_after  # noqa: PLC0415 - an extra

    schema = StructType.fromJson(json.loads(schema_after(frame.schema.jsonValue(), decode_pass.coded)))
    return frame.mapInArrow(decode_pass, schema).alias(name)


def _decode_pass(name: str, source: Source, decode: Decode) -> "DecodePass":
    coded = coded_columns(decode, single_topic(source.options), who=f"Source {name!r} decodes")
    from penstock.registry.decoding import DecodePass  # noqa: PLC0415 - an extra

    passes_over = decode.undecodable == "quarantine"
    return DecodePass(source=name, place=place_of(decode.registry), coded=coded, passes_over=passes_over)
