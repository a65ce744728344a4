"""Decodes keys and values of a Kafka source into typed columns, by schemas of a registry."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from penstock.core.model import SourceName
from penstock.errors import DependencyMissing, Usage
from penstock.registry.semantic_type import is_convertible, nameable
from penstock.registry.wire import RegistryPlace
from penstock.source.schema import parsed_schema
from penstock.spec.kafka_options import single_topic
from penstock.spec.registry import ByRegistry, Decode, DecodedValue, Registry
from penstock.spec.source import Source
from penstock.support.extras import install_command
from penstock.support.secret import shown_text

if TYPE_CHECKING:
    from penstock.registry.decoding import ChangeColumn, CodedColumn, DecodePass


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
            f"{who} with the package {cause.name}, which is not installed.",
            remedy=f"Install it on the driver and on every executor: {install_command('registry')}",
        ) from cause
    if settings.registry is None:
        return ()
    client = Client(place_of(settings.registry))
    coded = []
    for column, (subject, version) in subjects_of(settings, topic).items():
        found = client.of_subject(subject, version)
        coded.append(CodedColumn(column=column, format=settings.columns[column].format, subject=subject, schema=found))
    return tuple(coded)


def decode_passes(spark: SparkSession, sources: Mapping[str, Source]) -> "Mapping[SourceName, DecodePass]":
    """Return the pass over the records of each source that decodes; the registry is asked now for the schemas to read by.

    Raises Usage (no such subject, columns that no change event has), Retryable (the registry does not answer), Failed,
    DependencyMissing.
    """
    decoding = {name: source.decode for name, source in sources.items() if source.decode is not None}
    return {SourceName(name): _decode_pass(spark, name, sources[name], decode) for name, decode in decoding.items()}


def decoded(name: str, frame: DataFrame, decode_pass: "DecodePass") -> DataFrame:
    """Return the source's records, decoded. Raises Usage for a schema without type."""
    from penstock.registry.decoding import schema_after  # noqa: PLC0415 - an extra

    schema = StructType.fromJson(json.loads(schema_after(frame.schema.jsonValue(), decode_pass.coded)))
    return frame.mapInArrow(decode_pass, schema).alias(name)


def _decode_pass(spark: SparkSession, name: str, source: Source, decode: Decode) -> "DecodePass":
    coded = coded_columns(decode, single_topic(source.options), who=f"Source {name!r} decodes")
    from penstock.registry.decoding import DecodePass  # noqa: PLC0415 - an extra

    columns: Sequence[CodedColumn | ChangeColumn] = coded
    if decode.changes is not None:
        others = [each for each in coded if each.column != "value"]
        columns = (*others, _change_column(spark, name, decode.changes, next((x for x in coded if x.column == "value"), None)))
    place = None if decode.registry is None else place_of(decode.registry)
    return DecodePass(source=name, place=place, coded=tuple(columns), passes_over=decode.undecodable == "quarantine")


def _change_column(spark: SparkSession, name: str, changes: DecodedValue, coded: "CodedColumn | None") -> "ChangeColumn":
    from penstock.registry.decoding import ChangeColumn  # noqa: PLC0415 - an extra

    if coded is not None:
        return ChangeColumn(by_registry=coded, placeholder=changes.unavailable_value)
    where = f"sources.{name}.decode.value"
    row = parsed_schema(spark, f"{where}.schema", changes.schema_ddl or "")
    columns: Any = row["fields"]
    unfit = next((each for each in columns if not is_convertible(each["type"])), None)
    if unfit is not None:
        kind = unfit["type"] if isinstance(unfit["type"], str) else unfit["type"]["type"]
        raise Usage(
            f"{where}.schema has the column {unfit['name']!r} of type {kind}, which no column of a change event is.",
            remedy="Take numbers, STRING, BINARY, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ, DECIMAL, and ARRAY or MAP<STRING, …> "
            "of these.",
        )
    for column, semantic in changes.semantic_types.items():
        _require_ambiguous(where, column, semantic, {each["name"]: each["type"] for each in columns})
    return ChangeColumn(row=json.dumps(row), semantic_types=dict(changes.semantic_types), placeholder=changes.unavailable_value)


def _require_ambiguous(where: str, column: str, semantic: str, columns: Mapping[str, Any]) -> None:
    """Raise Usage unless values of a column can be of that semantic type."""
    if column not in columns:
        raise Usage(
            f"{where}.semantic_types names {column!r}, and `schema` has {', '.join(columns)}.", remedy="Name one of its columns."
        )
    allowed = nameable(columns[column])
    if semantic not in allowed:
        field = {"name": column, "type": columns[column], "nullable": True, "metadata": {}}
        raise Usage(
            f"{where}.semantic_types.{column} is {semantic}, and the column has the type "
            f"{StructField.fromJson(field).dataType.simpleString()}.",
            remedy=f"Write one of {', '.join(allowed)}." if allowed else "Take it out: such a column is read as its values are.",
        )
