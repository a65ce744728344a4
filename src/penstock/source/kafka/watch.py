"""Checks that Kafka still has what is to be read next: before a start, before each batch, and after it was staged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.kafka_offset import TopicOffsets, topic_offsets_in
from penstock.core.model import OffsetRange, SourceName
from penstock.core.topics import GapAccepted, PartitionRead, TopicRead
from penstock.errors import DependencyMissing, PenstockError
from penstock.source.kafka.gaps import NowOf, TopicNow, gaps_of, truncated
from penstock.source.kafka.options import client_options, is_kafka
from penstock.spec.pipeline import DeliverySettings
from penstock.spec.source import Source
from penstock.support.extras import install_command

if TYPE_CHECKING:
    from penstock.source.kafka.broker import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSeen:
    """The result of one look: what the batch reads of each topic, what is missing before it, and how the topics are now."""

    topics: tuple[TopicRead, ...]
    gaps: tuple[GapAccepted, ...]
    now: NowOf


class Watch:
    """Watches the Kafka sources of a pipeline. `connect` makes the client of one, at the first look."""

    def __init__(self, sources: Mapping[SourceName, Source], *, connect: "Callable[[SourceName, Source], Broker]") -> None:
        self.sources, self._connect = sources, connect
        self._brokers: dict[SourceName, Broker] = {}

    def look(self, ranges: Sequence[OffsetRange], *, known: Sequence[TopicRead]) -> TopicsSeen:
        """Look at the topics of `ranges`, skipping other sources. A range without an end stands for where reading would go on.

        Raises Retryable, Failed, DependencyMissing.
        """
        topics = list[TopicRead]()
        gaps = list[GapAccepted]()
        now = dict[tuple[SourceName, str], TopicNow]()
        for each in ranges:
            if each.source in self.sources:
                seen = self._look_at(each, known={read.topic: read for read in known if read.source == each.source})
                topics += seen.topics
                gaps += seen.gaps
                now |= seen.now
        return TopicsSeen(topics=tuple(topics), gaps=tuple(gaps), now=now)

    def _look_at(self, each: OffsetRange, *, known: Mapping[str, TopicRead]) -> TopicsSeen:
        start, end = topic_offsets_in(each.start), topic_offsets_in(each.end)
        needed = _needed(start, end)
        now = self._ask(each.source, list(needed))
        gaps = (
            *gaps_of(each.source, needed, known=known, now=now),
            *truncated(each.source, needed, end, known=known, now=now),
        )
        read = [
            _read(each.source, topic, parts, end.get(topic, parts), now[topic]) for topic, parts in needed.items() if topic in now
        ]
        return TopicsSeen(topics=tuple(read), gaps=gaps, now={(each.source, topic): of for topic, of in now.items()})

    def _ask(self, name: SourceName, topics: Sequence[str]) -> Mapping[str, TopicNow]:
        """Ask the brokers; drop a client that failed, since it goes on asking a partition's previous leader."""
        try:
            if name not in self._brokers:
                self._brokers[name] = self._connect(name, self.sources[name])
            return self._brokers[name].topics(topics)
        except PenstockError:
            self._brokers.pop(name, None)
            raise


def _needed(start: TopicOffsets, end: TopicOffsets) -> TopicOffsets:
    """Return where each partition goes on. One that was added since is read from its first record."""
    topics = dict.fromkeys([*start, *end])
    return {topic: {**dict.fromkeys(end.get(topic, {}), 0), **start.get(topic, {})} for topic in topics}


def _read(source: SourceName, topic: str, start: Mapping[int, int], end: Mapping[int, int], now: TopicNow) -> TopicRead:
    return TopicRead(
        source=source,
        topic=topic,
        topic_id=now.topic_id,
        partitions={
            number: PartitionRead(start=first, end=end.get(number, first), low=retained.low, high=retained.high)
            for number, first in start.items()
            if (retained := now.partitions.get(number)) is not None
        },
    )


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
        from penstock.source.kafka.broker import Broker  # noqa: PLC0415 - whether its package is installed is the question
    except ImportError as cause:
        raise DependencyMissing(
            f"Source {name!r} reads Kafka, and Penstock looks at it with the package confluent-kafka, which is not installed.",
            remedy=f"Install it on the driver: {install_command('kafka')}",
        ) from cause
    return Broker(name, client_options(name, source))
