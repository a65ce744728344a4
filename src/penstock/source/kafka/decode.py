"""Decodes keys and values of a Kafka source into typed columns, by schemas of a registry."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.core.model import SourceName
from penstock.errors import DependencyMissing
from penstock.registry.wire import RegistryPlace
from penstock.spec.kafka_options import single_topic
from penstock.spec.registry import ByRegistry, Decode, Registry
from penstock.spec.source import Source
from penstock.support.secret import shown_text

if TYPE_CHECKING:
    from penstock.registry.decoding import CodedColumn, DecodePass


def place_of(registry: Registry) -> RegistryPlace:
    """Return the registry's settings as its client takes them."""
    return RegistryPlace(
        urls=tuple(url.strip().rstrip("/") for url in registry.url.split(",")),
        name=shown_text(registry.url),
        user=registry.user,
        password=registry.password,
        token=registry.token,
        ca_file=registry.ca_file,
        certificate_file=registry.certificate_file,
        key_file=registry.key_file,
        timeout_s=registry.timeout / 1000,
    )


def subjects_of(settings: ByRegistry, topic: str | None) -> Mapping[str, tuple[str, int | None]]:
    """Return by which subject each column is read or written, and which of its versions; None is the newest.

    `topic` is None only where every column names its subject (`require_subjects`).
    """
    return {column: (coded.subject or f"{topic}-{column}", coded.version) for column, coded in settings.columns.items()}


def coded_columns(settings: ByRegistry, topic: str | None, *, who: str) -> "tuple[CodedColumn, ...]":
    """Return the columns with their schemas, for which the registry is asked now.

    `who` begins the messages: "Source 'orders' decodes". Raises Usage (no such subject), Retryable (the registry does not
    answer), Failed, DependencyMissing.
    """
    try:
        from penstock.registry.client import Registry as Client  # noqa: PLC0415 - an extra
        from penstock.registry.decoding import CodedColumn  # noqa: PLC0415
    except ImportError as cause:
        raise DependencyMissing(
            f"{who} by a schema registry with the package {cause.name}, which is not installed.",
            remedy="Install it on the driver and on every executor: pip install 'penstock[registry]'.",
        ) from cause
    client = Client(place_of(settings.registry))
    coded = []
    for column, (subject, version) in subjects_of(settings, topic).items():
        found = client.of_subject(subject, version)
        coded.append(CodedColumn(column=column, format=settings.columns[column].format, subject=subject, schema=found))
    return tuple(coded)


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
