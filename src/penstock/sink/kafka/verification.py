"""Compares topics with the markers, and the markers with the ledger. Every record is read where none can have been removed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_random

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import ONLY_ACCOUNT, Position, Problem, Publication, RowDigest, Staged, Totals
from penstock.errors import Retryable
from penstock.protocols import SinkDecisions
from penstock.sink.kafka.clients import Clients
from penstock.sink.kafka.errors import LOOK_INTO_LOGS, is_of_group
from penstock.sink.kafka.marker_store import Beginning, LaneMarker
from penstock.sink.kafka.records import rows_of
from penstock.sink.kafka.target import LANES
from penstock.sink.kafka.topics import ANSWER_S, SETTLED_S, Topic, described, first, settled, written
from penstock.sink.table.marker import minus
from penstock.sink.table.publication import totals_of
from penstock.spark.schema import arrow_schema

_AT_ONCE = 10_000
_LONGEST_PAUSE_S = 0.05
_LOOK_S = 0.05
"""How long the client waits for `_AT_ONCE` records; it reports the end of a partition only then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Offsets up to which topics are compared. If `is_whole`, no transaction was open: what lies below is what the markers say.

    `markers`: the offset of each partition of the topic of markers. `ends`: those of each topic.
    """

    markers: Sequence[int]
    ends: Mapping[str, Sequence[int]]
    is_whole: bool


def decided(marks: Sequence[LaneMarker]) -> Totals:
    """Return the totals that the lanes have published by their markers."""
    return sum((mark.marker.decided for mark in marks), Totals())


def high_water_mark(marks: Sequence[LaneMarker]) -> HighWaterMark | None:
    """Return the newest marker's high-water mark; a ledger that has claimed one lane has claimed all of them."""
    newest = max((mark.marker.high_water_mark for mark in marks), key=lambda mark: mark.position, default=None)
    named = [mark.marker.ledger_id for mark in marks if mark.marker.ledger_id is not None]
    if newest is None or newest.ledger_id is not None or not named:
        return newest
    return replace(newest, ledger_id=named[0])


def position(marks: Sequence[LaneMarker]) -> Position:
    """Return the newest position that a lane shows."""
    return max((mark.marker.position for mark in marks), default=Position(0))


def ledger_side(marks: Sequence[LaneMarker], decisions: SinkDecisions) -> tuple[Position, Totals]:
    """Return as of which position the lanes are compared, and what they must have published by then.

    Lanes publish the newest batch at different moments. The shares of lanes that have not yet are left out, unless the batch was
    published when the verification began.
    """
    newest = max(position(marks), decisions.published_at)
    expected = decisions.totals(newest).get(ONLY_ACCOUNT, Totals())
    late = [] if newest == decisions.published_at else _late_pieces(marks, next(decisions.publications(newest), None))
    outstanding = sum((piece.totals for piece in late), Totals())
    return (decisions.published_at if late else newest), minus(expected, outstanding)


def _late_pieces(marks: Sequence[LaneMarker], newest: Publication | None) -> Sequence[Staged]:
    """Return the pieces of the newest batch whose lanes do not show it."""
    if newest is None or not newest.staged:
        return []
    lanes = int(str(newest.staged[0].ref[LANES]))
    done = {mark.lane for mark in marks if mark.marker.position >= newest.position}
    return [piece for at, piece in enumerate(newest.staged) if at % lanes not in done]


def marker_problems(
    marks: Sequence[LaneMarker], expected: Totals, known: Iterator[Publication], *, topic: str
) -> Sequence[Problem]:
    """Return what only the ledger or only the markers have, by batch where one explains it."""
    there = decided(marks)
    if (there.rows, there.digest) == (expected.rows, expected.digest):
        return []
    newest = position(marks)
    late = [publication for publication in known if publication.position > newest]
    if late:
        lacks = f"is decided but not published in topic {topic!r}."
        return [
            Problem(message=f"Batch {batch.batch_id} with {rows} rows {lacks}", file=topic, batch_id=batch.batch_id)
            for batch, rows in ((each.batch, each.totals.rows) for each in late)
        ]
    counted = f"The markers of topic {topic!r} are at position {newest} and count {there.rows} rows"
    return [Problem(message=f"{counted}; the ledger counts {expected.rows}, or another digest.", file=topic)]


def content_problems(found: Totals, marks: Sequence[LaneMarker], *, topic: str) -> Sequence[Problem]:
    """Return a problem if the topic has more, fewer or other records than the markers say, else none."""
    wanted = decided(marks)
    surplus = found.rows - wanted.rows
    if surplus > 0:
        what = f"holds {surplus} records more than were published: doubled or foreign"
    elif surplus < 0:
        what = f"lacks {-surplus} of the records that were published"
    elif found.digest != wanted.digest:
        what = "holds as many records as were published, but others"
    else:
        return []
    return [Problem(message=f"Topic {topic!r} {what}.", file=topic)]


def require_comparable(found: Totals, marks: Sequence[LaneMarker], at: Cut, decisions: SinkDecisions, *, topic: str) -> None:
    """Raise Retryable where records differ from the markers and a batch was partly published: nobody can tell whose they are."""
    in_part = not at.is_whole or any(mark.part for mark in marks)
    newest = next(decisions.publications(), None)
    if not in_part or not content_problems(found, marks, topic=topic) or not _late_pieces(marks, newest):
        return
    assert newest is not None
    raise Retryable(
        f"Batch {newest.batch.batch_id} was being published into topic {topic!r} while its records were read.",
        remedy="Verify again. If no driver runs, `penstock recover` publishes the batch first.",
    )


def beginnings(marks: Sequence[LaneMarker]) -> Mapping[str, Beginning]:
    """Return each topic's beginning as the first lane saw it."""
    found: dict[str, Beginning] = {}
    for mark in marks:
        for name, begun in mark.topics.items():
            before = found.get(name)
            if before is None or sum(begun.offsets) < sum(before.offsets):
                found[name] = begun
    return found


def has_removed(clients: Clients, begun: Mapping[str, Beginning]) -> bool:
    """Return whether a topic may have removed published records by its retention or compaction."""
    for name, topic in described(clients.admin, list(begun)).items():
        if topic is None or topic.keeps_everything:
            continue
        if topic.is_compacted:
            return True
        oldest = first(clients.admin, name, range(topic.partitions))
        if any(low > _start(begun[name], number) for number, low in enumerate(oldest)):
            return True
    return False


def cut(clients: Clients, markers: Topic, names: Sequence[str]) -> Cut:
    """Return a cut at a moment without open transactions or, after some seconds, where all below is committed."""
    topics = [topic for topic in described(clients.admin, names).values() if topic is not None]
    waiting = Retrying(
        retry=retry_if_result(lambda found: not found.is_whole),
        stop=stop_after_delay(SETTLED_S),
        wait=wait_random(max=_LONGEST_PAUSE_S),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    found: Cut = waiting(_cut, clients, markers, topics)
    return found


def _cut(clients: Clients, markers: Topic, topics: Sequence[Topic]) -> Cut:
    """Try once: read the topics between two reads of the markers, which are committed with their rows or not at all."""
    marked, marks_open = _ends(clients, markers)
    ends = {topic.name: _ends(clients, topic) for topic in topics}
    is_open = marks_open or any(is_open for _, is_open in ends.values())
    has_moved = written(clients.admin, markers.name, range(markers.partitions)) != marked
    return Cut(markers=marked, ends={name: end for name, (end, _) in ends.items()}, is_whole=not (is_open or has_moved))


def _ends(clients: Clients, topic: Topic) -> tuple[list[int], bool]:
    """Return up to where each partition is committed, and whether a transaction is open behind that."""
    numbers = range(topic.partitions)
    reached = written(clients.admin, topic.name, numbers)
    committed = settled(clients.admin, topic.name, numbers)
    return committed, committed != reached


def content(
    clients: Clients, begun: Mapping[str, Beginning], ends: Mapping[str, Sequence[int]], schema: str, row_digest: RowDigest
) -> Totals:
    """Count and hash every committed record between `begun` and `ends`. Raises KafkaException, Retryable."""
    ranges = [part for name, reached in ends.items() for part in _ranges(clients, name, begun[name], reached)]
    rows = arrow_schema(schema)
    return totals_of((rows_of(messages, rows) for messages in _committed(clients, ranges)), row_digest)


def _start(begun: Beginning, partition: int) -> int:
    return begun.offsets[partition] if partition < len(begun.offsets) else 0


def _ranges(clients: Clients, name: str, begun: Beginning, ends: Sequence[int]) -> Iterator[tuple[TopicPartition, int]]:
    """Yield where to read each partition from, and up to where."""
    oldest = first(clients.admin, name, range(len(ends)))
    for number, (low, end) in enumerate(zip(oldest, ends, strict=True)):
        start = max(low, _start(begun, number))
        if start < end:
            yield TopicPartition(name, number, start), end


def _committed(clients: Clients, ranges: "Sequence[tuple[TopicPartition, int]]") -> Iterator[Sequence[Any]]:
    """Yield the records of all partitions, some thousands at a time."""
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
                raise Retryable(
                    f"{clients.place} returned no record for {ANSWER_S:g} s, before the last one.", remedy=LOOK_INTO_LOGS
                )
            records = [message for message in messages if _counts(message, ends)]
            if records:
                yield records
    finally:
        consumer.close()


def _counts(message: Any, ends: dict[tuple[str, int], int]) -> bool:
    """Return whether `message` is a record in its range. Removes a partition from `ends` once its end was seen."""
    error = message.error()
    place = (message.topic(), message.partition())
    if is_of_group(error):
        return False
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    end = ends.get(place)
    if end is None:
        return False
    counts = error is None and message.offset() < end
    if message.offset() >= (end if error is not None else end - 1):
        ends.pop(place)  # not at the earlier end that a lagging broker reports
    return bool(counts)
