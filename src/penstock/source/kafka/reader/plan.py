"""Plans where a query begins, how much a batch reads, and in which pieces: offsets in, offsets out.

The rules are those of Spark's connector (KafkaMicroBatchStream, KafkaOffsetRangeCalculator), so that a pipeline gets the same
batches from either.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.kafka_offset import KafkaOffset, TopicOffsets
from penstock.errors import Failed
from penstock.source.kafka.gaps import RetainedOffsets, TopicNow
from penstock.source.kafka.reader.settings import ReaderSettings

if TYPE_CHECKING:
    from penstock.source.kafka.broker import Broker

_LATEST, _EARLIEST = -1, -2
"""Offsets that stand for the ends of a partition in `startingOffsets`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one task reads: offsets of a partition from `first` on and below `end`. `topic_id`: None where none was noted."""

    topic: str
    topic_id: str | None
    partition: int
    first: int
    end: int


def batch_end(start: TopicOffsets, now: Mapping[str, TopicNow], *, limit: int | None) -> TopicOffsets:
    """Return where a batch of about `limit` offsets ends: each partition has its proportional share of them, one at least."""
    ends = {topic: {number: retained.high for number, retained in of.partitions.items()} for topic, of in now.items()}
    if limit is None:
        return ends
    begins = {
        (topic, number): start.get(topic, {}).get(number, retained.low)
        for topic, of in now.items()
        for number, retained in of.partitions.items()
    }
    sizes = {(topic, number): ends[topic][number] - first for (topic, number), first in begins.items()}
    total = sum(size for size in sizes.values() if size > 0)
    for (topic, number), size in sizes.items():
        if size > 0:
            share = limit * (size / total)
            taken = math.ceil(share) if share < 1 else math.floor(share)
            ends[topic][number] = min(ends[topic][number], begins[topic, number] + taken)
    return ends


def pieces(start: KafkaOffset, end: KafkaOffset, *, at_least: int | None, at_most: int | None) -> Iterator[Piece]:
    """Yield the pieces of the batch between two offsets: about `at_least` of them, and none of more than `at_most` offsets.

    A partition that `start` does not know is read from its first record. When Spark reads a query's first batch again, it asks
    anew for the query's start; then `end.began`, the original start, counts. With any other batch `end.began` is ignored: Spark
    plans an empty batch from the end of the first one, too.
    """
    begins = end.began if start.is_first and end.began is not None else start.topics
    whole = [
        Piece(topic=topic, topic_id=end.topic_ids.get(topic), partition=number, first=first, end=last)
        for topic, parts in sorted(end.topics.items())
        for number, last in sorted(parts.items())
        if (first := begins.get(topic, {}).get(number, 0)) < last
    ]
    total = sum(one.end - one.first for one in whole)
    for one in whole:
        size = one.end - one.first
        wanted = 1 if at_least is None or len(whole) >= at_least else round(size / total * at_least)
        fitting = 1 if at_most is None else math.ceil(size / at_most)
        yield from _cut(one, max(1, wanted, fitting))


def _cut(whole: Piece, parts: int) -> Iterator[Piece]:
    first = whole.first
    for left in range(parts, 0, -1):
        end = first + (whole.end - first) // left
        if end > first:
            yield Piece(topic=whole.topic, topic_id=whole.topic_id, partition=whole.partition, first=first, end=end)
        first = end


def beginning(settings: ReaderSettings, now: Mapping[str, TopicNow], brokers: "Broker") -> TopicOffsets:
    """Return the first offset to read of each partition. Raises Failed where the options do not give it for every partition."""
    if settings.starting_ms is not None:
        return _by_time(settings, settings.starting_ms, now, brokers)
    starting = settings.starting
    if isinstance(starting, str):
        end = _EARLIEST if starting == "earliest" else _LATEST
        starting = {topic: dict.fromkeys(of.partitions, end) for topic, of in now.items()}
    _require_all(settings, starting, now, "startingOffsets")
    return {
        topic: {number: _resolved(starting[topic][number], retained) for number, retained in of.partitions.items()}
        for topic, of in now.items()
    }


def _resolved(start: int, retained: RetainedOffsets) -> int:
    return {_LATEST: retained.high, _EARLIEST: retained.low}.get(start, start)


def _by_time(
    settings: ReaderSettings, start: int | TopicOffsets, now: Mapping[str, TopicNow], brokers: "Broker"
) -> Mapping[str, Mapping[int, int]]:
    partitions = [(topic, number) for topic, of in now.items() for number in of.partitions]
    if isinstance(start, int):
        wanted = dict.fromkeys(partitions, start)
    else:
        _require_all(settings, start, now, "startingOffsetsByTimestamp")
        wanted = {(topic, number): start[topic][number] for topic, number in partitions}
    found = brokers.since(wanted)
    late = next((at for at in partitions if found[at] is None), None)
    if late is not None and not settings.is_late_start_latest:
        raise Failed(
            f"Partition {late[1]} of topic {late[0]!r} has no record yet from time stamp {wanted[late]} on.",
            remedy="Name an earlier one, or set startingOffsetsByTimestampStrategy: latest to begin with what comes next.",
        )
    return {
        topic: {number: _or_end(found[topic, number], of.partitions[number]) for number in of.partitions}
        for topic, of in now.items()
    }


def _or_end(found: int | None, retained: RetainedOffsets) -> int:
    return retained.high if found is None else found


def _require_all(settings: ReaderSettings, start: TopicOffsets, now: Mapping[str, TopicNow], option: str) -> None:
    given = {(topic, number) for topic, parts in start.items() for number in parts}
    there = {(topic, number) for topic, of in now.items() for number in of.partitions}
    odd = sorted(given ^ there)
    if odd:
        topic, number = odd[0]
        wrong = "does not name" if odd[0] in there else "names one that is not there or not read:"
        raise Failed(
            f"sources.{settings.name}.options.{option} must name every partition that is read, but {wrong} partition {number} of "
            f"topic {topic!r}.",
            remedy="Name each: -2 stands for its first record and -1 for its end.",
        )
