"""Finds what is missing between where reading goes on and what the broker has. Pure: positions in, gaps out.

Spark compares offsets and nothing else. A topic that was deleted and created again, and is longer than the old offset by now, is
read from its middle without an error; only its id shows it (docs/GUARANTEES.md).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from penstock.core.kafka_offset import TopicOffsets
from penstock.core.model import SourceName
from penstock.core.topics import GapAccepted, GapKind, TopicRead
from penstock.errors import Retryable


@dataclass(frozen=True, slots=True)
class RetainedOffsets:
    """The offsets that the broker has of a partition: from `low` on and below `high`."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNow:
    """A topic that exists; `topic_id` is another one after it was deleted and created again."""

    topic_id: str
    partitions: Mapping[int, RetainedOffsets]


NowOf: TypeAlias = Mapping[tuple[SourceName, str], TopicNow]
"""Topics as they are now, by source: two clusters may each have one of the same name."""
_SHOWN = 8


def gaps_of(
    source: SourceName, needed: TopicOffsets, *, known: Mapping[str, TopicRead], now: Mapping[str, TopicNow]
) -> tuple[GapAccepted, ...]:
    """Return every gap in front of `needed`, the first offset of each partition that was not delivered.

    `known` are the topics as they were last read. Raises Retryable where the broker that answered lags behind what was read.
    """
    return tuple(
        gap
        for topic, partitions in needed.items()
        for gap in _of_topic(source, topic, partitions, known=known.get(topic), now=now.get(topic))
    )


def truncated(
    source: SourceName, needed: TopicOffsets, end: TopicOffsets, *, known: Mapping[str, TopicRead], now: Mapping[str, TopicNow]
) -> Iterator[GapAccepted]:
    """Yield records of a batch planned up to `end` that the broker lost from the end of its log. `gaps_of` finds other gaps."""
    for topic, of in now.items():
        if topic in known and known[topic].topic_id != of.topic_id:
            continue
        for number, last in end.get(topic, {}).items():
            retained = of.partitions.get(number)
            first = needed[topic][number]
            if retained is not None and first <= retained.high < last:
                yield GapAccepted(
                    kind=GapKind.TRUNCATED,
                    source=source,
                    topic=topic,
                    topic_id=of.topic_id,
                    partition=number,
                    first=retained.high,
                    end=last,
                )


def _of_topic(
    source: SourceName, topic: str, partitions: Mapping[int, int], *, known: TopicRead | None, now: TopicNow | None
) -> Iterator[GapAccepted]:
    of = now if known is None else known
    topic_id = "" if of is None else of.topic_id
    if known is not None and now is not None and known.topic_id == now.topic_id:
        _require_all(source, topic, partitions, now)
    for number, first in partitions.items():
        kind, end = _of_partition(number, first, known=known, now=now)
        if kind is not None:
            yield GapAccepted(
                kind=kind,
                source=source,
                topic=topic,
                topic_id=topic_id,
                partition=number,
                first=min(first, end),
                end=max(first, end),
            )


def _require_all(source: SourceName, topic: str, partitions: Mapping[int, int], now: TopicNow) -> None:
    """Raise Retryable unless all partitions exist: Kafka removes none of a topic, but a broker may know of a new one late."""
    missing = [number for number in partitions if number not in now.partitions]
    if missing:
        raise Retryable(
            f"The broker of source {source!r} that answered does not know partition {missing[0]} of topic {topic!r} yet.",
            remedy="Try again: brokers learn of new partitions one after the other.",
        )


def _of_partition(number: int, first: int, *, known: TopicRead | None, now: TopicNow | None) -> tuple[GapKind | None, int]:
    """Return the kind of gap, None if there is none, and the other end of what is missing."""
    last_seen = known.partitions[number].high if known is not None and number in known.partitions else first
    if now is None:
        return GapKind.DELETED, max(first, last_seen)
    retained = now.partitions.get(number)
    if retained is None or (known is not None and known.topic_id != now.topic_id):
        return GapKind.RECREATED, max(first, last_seen)
    if first < retained.low:
        return GapKind.EXPIRED, retained.low
    return (GapKind.TRUNCATED, retained.high) if first > retained.high else (None, first)


def within(gap: GapAccepted, end: TopicOffsets) -> Iterator[GapAccepted]:
    """Yield the part of an EXPIRED gap that lies below `end`, since later batches have the rest; any other gap whole."""
    below = end.get(gap.topic, {}).get(gap.partition, gap.first)
    if gap.kind is not GapKind.EXPIRED:
        yield gap
    elif gap.first < below:
        yield replace(gap, end=min(gap.end, below))


def describe_gaps(gaps: tuple[GapAccepted, ...], *, now: NowOf) -> str:
    """Describe what is missing, topic by topic, in sentences."""
    return " ".join(
        _DESCRIPTIONS[kind](topic, list(found), now.get((source, topic))) for (source, topic, kind), found in _by_topic(gaps)
    )


def gap_descriptions(gaps: tuple[GapAccepted, ...]) -> str:
    """Describe what is missing for the ledger, without a look at the topics as they are now."""
    return "; ".join(f"topic {topic!r} ({kind.value}): {_ranges(list(found))}" for (_, topic, kind), found in _by_topic(gaps))


def _by_topic(gaps: tuple[GapAccepted, ...]) -> Iterator[tuple[tuple[SourceName, str, GapKind], Iterator[GapAccepted]]]:
    return groupby(gaps, key=attrgetter("source", "topic", "kind"))


def lost(gaps: tuple[GapAccepted, ...]) -> int:
    """Return how many offsets are missing."""
    return sum(gap.end - gap.first for gap in gaps)


def _expired(topic: str, gaps: list[GapAccepted], _: TopicNow | None) -> str:
    return f"Kafka no longer has {_records(gaps)} of topic {topic!r} that were not delivered: {_ranges(gaps)}."


def _recreated(topic: str, gaps: list[GapAccepted], now: TopicNow | None) -> str:
    ids = f"its id was {gaps[0].topic_id}, now it is {now.topic_id}" if now is not None else "it is another one"
    old = _undelivered(gaps, "of the old one {records}", otherwise="all of the old one was delivered")
    return f"Topic {topic!r} was deleted and created again ({ids}); {old}."


def _deleted(topic: str, gaps: list[GapAccepted], _: TopicNow | None) -> str:
    old = _undelivered(gaps, "{records} of it", otherwise="all that was known of it was delivered")
    return f"Topic {topic!r} does not exist any more; {old}."


def _undelivered(gaps: list[GapAccepted], which: str, *, otherwise: str) -> str:
    found = [gap for gap in gaps if gap.end > gap.first]
    return f"{which.format(records=_records(found))} were not delivered: {_ranges(found)}" if found else otherwise


def _truncated(topic: str, gaps: list[GapAccepted], _: TopicNow | None) -> str:
    return f"Topic {topic!r} ends before what was read of it, by {_records(gaps)}: {_ranges(gaps)}; the broker has lost them."


_DESCRIPTIONS = {
    GapKind.EXPIRED: _expired,
    GapKind.RECREATED: _recreated,
    GapKind.DELETED: _deleted,
    GapKind.TRUNCATED: _truncated,
}


def _records(gaps: list[GapAccepted]) -> str:
    number = lost(tuple(gaps))
    return f"{number:,} record{'' if number == 1 else 's'}"


def _ranges(gaps: list[GapAccepted]) -> str:
    shown = [f"partition {gap.partition} offsets {gap.first} to {gap.end - 1}" for gap in gaps[:_SHOWN]]
    more = [f"{len(gaps) - _SHOWN} more partitions"] if len(gaps) > _SHOWN else []
    return ", ".join(shown + more)
