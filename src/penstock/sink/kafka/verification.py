"""The topics against the markers, and the markers against the ledger; every record is read where none can have been removed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.errors import Retryable
from penstock.model import Position, Problem, Publication, Totals
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.marks import Beginning, LaneMark
from penstock.sink.kafka.records import rows_of
from penstock.sink.kafka.topics import ANSWER_S, SETTLED_S, Topic, await_settled, described, first, settled
from penstock.sink.kafka.trouble import is_of_group
from penstock.sink.table.content import totals_of
from penstock.sparkschema import arrow_schema

_AT_ONCE = 10_000
_LOOK_S = 0.05
"""How long the client waits for so many; it tells of an end only then."""


def decided(marks: Sequence[LaneMark]) -> Totals:
    """What the lanes say that they have published."""
    return sum((mark.marker.decided for mark in marks), Totals())


def position(marks: Sequence[LaneMark]) -> Position:
    """The newest one that a lane has shown."""
    return max((mark.marker.position for mark in marks), default=Position(0))


def marker_problems(
    marks: Sequence[LaneMark], expected: Totals, known: Iterator[Publication], *, topic: str
) -> Sequence[Problem]:
    """What the ledger has and the markers have not, or the other way round; named by batch where one fits."""
    there = decided(marks)
    if (there.rows, there.digest) == (expected.rows, expected.digest):
        return []
    newest = position(marks)
    late = [publication for publication in known if publication.position > newest]
    if late:
        return [_unpublished(publication, topic) for publication in late]
    counted = f"The markers of topic {topic!r} are at position {newest} and count {there.rows} rows"
    return [Problem(message=f"{counted}; the ledger counts {expected.rows}, or another digest.", file=topic)]


def content_problems(found: Totals, marks: Sequence[LaneMark], *, topic: str) -> Sequence[Problem]:
    """Records too many, too few or others than the markers say."""
    wanted = decided(marks)
    surplus = found.rows - wanted.rows
    if surplus > 0:
        return [
            Problem(message=f"Topic {topic!r} holds {surplus} records more than were published: doubled or foreign.", file=topic)
        ]
    if surplus < 0:
        return [Problem(message=f"Topic {topic!r} lacks {-surplus} of the records that were published.", file=topic)]
    if found.digest != wanted.digest:
        return [Problem(message=f"Topic {topic!r} holds as many records as were published, but others.", file=topic)]
    return []


def _unpublished(publication: Publication, topic: str) -> Problem:
    batch_id, rows = publication.batch.batch_id, publication.totals.rows
    message = f"Batch {batch_id} with {rows} rows is decided but not published in topic {topic!r}."
    return Problem(message=message, file=topic, batch_id=batch_id)


def beginnings(marks: Sequence[LaneMark]) -> Mapping[str, Beginning]:
    """Where each topic ended when the first lane saw it."""
    found: dict[str, Beginning] = {}
    for mark in marks:
        for name, begun in mark.topics.items():
            before = found.get(name)
            if before is None or sum(begun.offsets) < sum(before.offsets):
                found[name] = begun
    return found


def readable(clients: Clients, begun: Mapping[str, Beginning]) -> str | None:
    """Why not every record that was published can be read back; None if it can, or if nobody but a person removed one."""
    for name, topic in described(clients.admin, list(begun)).items():
        if topic is not None and not topic.keeps_everything and _has_lost(clients, topic, begun[name]):
            return f"topic {name} has removed records by its retention or compaction"
    return None


def content(clients: Clients, begun: Mapping[str, Beginning], schema: str) -> Totals:
    """Every committed record since then, counted and hashed. Raises KafkaException, Retryable."""
    ranges = [
        part
        for name, topic in described(clients.admin, list(begun)).items()
        if topic
        for part in _ranges(clients, topic, begun[name])
    ]
    rows = arrow_schema(schema)
    return totals_of(rows_of(messages, rows) for messages in _committed(clients, ranges))


def _has_lost(clients: Clients, topic: Topic, begun: Beginning) -> bool:
    if topic.is_compacted:
        return True
    oldest = first(clients.admin, topic.name, range(topic.partitions))
    return any(low > _start(begun, number) for number, low in enumerate(oldest))


def _start(begun: Beginning, partition: int) -> int:
    return begun.offsets[partition] if partition < len(begun.offsets) else 0


def _ranges(clients: Clients, topic: Topic, begun: Beginning) -> Iterator[tuple[TopicPartition, int]]:
    """Where to read each partition from, and up to where."""
    numbers = range(topic.partitions)
    await_settled(clients.admin, topic.name, numbers, wait_s=SETTLED_S)
    oldest, ends = first(clients.admin, topic.name, numbers), settled(clients.admin, topic.name, numbers)
    for number, low, end in zip(numbers, oldest, ends, strict=True):
        start = max(low, _start(begun, number))
        if start < end:
            yield TopicPartition(topic.name, number, start), end


def _committed(clients: Clients, ranges: "Sequence[tuple[TopicPartition, int]]") -> Iterator[Sequence[Any]]:
    """Records of all partitions, some thousands at a time."""
    ends = {(place.topic, place.partition): end for place, end in ranges}
    consumer = clients.consumer()
    try:
        consumer.assign([place for place, _ in ranges])
        heard_s = time.monotonic()
        while ends:
            messages = consumer.consume(_AT_ONCE, _LOOK_S)
            if messages:
                heard_s = time.monotonic()
            if time.monotonic() - heard_s > ANSWER_S:
                raise Retryable(f"{clients.place} does not give all records.", remedy="Look at its brokers, and try again.")
            records = [message for message in messages if _counts(message, ends)]
            if records:
                yield records
    finally:
        consumer.close()


def _counts(message: Any, ends: dict[tuple[str, int], int]) -> bool:
    """Whether it is a record in the range; a partition whose end was seen is forgotten."""
    error, place = message.error(), (message.topic(), message.partition())
    if is_of_group(error):
        return False
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    end = ends.get(place)
    if end is None:
        return False
    counts = error is None and message.offset() < end
    if message.offset() >= (end if error is not None else end - 1):
        ends.pop(place)  # not where a broker that lags behind says that its log ends
    return bool(counts)
