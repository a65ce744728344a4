"""Plans how much a batch reads, and in which pieces. Pure: positions in, positions out.

The rules are those of Spark's connector (KafkaMicroBatchStream, KafkaOffsetRangeCalculator), so that a pipeline gets the same
batches from either.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.core.kafka_offset import KafkaOffset, Positions
from penstock.source.kafka.topic import TopicNow


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one task reads: offsets of a partition from `first` on and below `end`. `topic_id`: None where none was noted."""

    topic: str
    topic_id: str | None
    partition: int
    first: int
    end: int


def batch_end(start: Positions, now: Mapping[str, TopicNow], *, limit: int | None) -> Positions:
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
    """Yield the pieces of the batch between two offsets: `at_least` so many, of `at_most` so many offsets each, if given.

    A partition that `start` does not know is read from its first record. When Spark reads a query's first batch again, it asks
    anew for the query's start; then `end.began`, the original start, counts. With any other batch `end.began` is ignored: Spark
    plans an empty batch from the end of the first one, too.
    """
    begins = end.began if start.is_first and end.began is not None else start.positions
    whole = [
        Piece(topic=topic, topic_id=end.topic_ids.get(topic), partition=number, first=first, end=last)
        for topic, parts in sorted(end.positions.items())
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
