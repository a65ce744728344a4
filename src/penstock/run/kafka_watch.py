"""The watch over a pipeline's Kafka sources and the client of their brokers, made from the settings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.core.model import SourceName
from penstock.errors import DependencyMissing
from penstock.source.kafka.options import client_options, is_kafka
from penstock.source.kafka.watch import Watch
from penstock.spec.pipeline import DeliverySettings
from penstock.spec.source import Source

if TYPE_CHECKING:
    from penstock.source.kafka.broker import Broker


def watch_of(settings: DeliverySettings) -> Watch | None:
    """Return a watch over the pipeline's Kafka sources, None if there are none. Nothing is connected."""
    sources = dict(kafka_sources(settings))
    return Watch(sources, connect=brokers_of) if sources else None


def kafka_sources(settings: DeliverySettings) -> Iterator[tuple[SourceName, Source]]:
    """Yield the sources of a pipeline that are read from Kafka."""
    for name, source in getattr(settings, "sources", {}).items():
        if is_kafka(source):
            yield SourceName(name), source


def brokers_of(name: SourceName, source: Source) -> "Broker":
    """Return the client of a Kafka source's brokers. Raises DependencyMissing, Usage, Failed."""
    try:
        from penstock.source.kafka.broker import Broker
    except ImportError as cause:
        raise DependencyMissing(
            f"Source {name!r} reads Kafka, and Penstock looks at it with the package confluent-kafka, which is not installed.",
            remedy="Install it on the driver: pip install 'penstock[kafka]'.",
        ) from cause
    return Broker(name, client_options(name, source))
