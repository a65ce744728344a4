"""The parts of a ledger entry about Kafka: the offsets a batch read, and the gaps that were accepted."""

from penstock.core.codec.fields import DamagedError, integer, items, mapping, record, text
from penstock.core.model import Json, SourceName
from penstock.core.topics import GapAccepted, GapKind, PartitionRead, TopicRead

_TOPIC_FIELDS = frozenset({"source", "topic", "topic_id", "partitions"})
_GAP_FIELDS = frozenset({"kind", "source", "topic", "topic_id", "partition", "first", "end"})


def of_topics(topics: tuple[TopicRead, ...]) -> list[Json]:
    """Return `topics` as JSON fields. A partition is a short list, because there may be thousands of partitions."""
    return [
        {
            "source": each.source,
            "topic": each.topic,
            "topic_id": each.topic_id,
            "partitions": {str(number): [of.start, of.end, of.low, of.high] for number, of in each.partitions.items()},
        }
        for each in topics
    ]


def to_topics(value: object) -> tuple[TopicRead, ...]:
    """Return the topics that `of_topics` wrote. Raises DamagedError."""
    return tuple(_topic(each) for each in items(value))


def _topic(value: object) -> TopicRead:
    fields = record(value, _TOPIC_FIELDS)
    partitions = mapping(fields["partitions"])
    return TopicRead(
        source=SourceName(text(fields["source"])),
        topic=text(fields["topic"]),
        topic_id=text(fields["topic_id"]),
        partitions={_number(name): _partition(partitions[name]) for name in sorted(partitions, key=_number)},
    )


def _number(name: str) -> int:
    if not name.isdecimal():
        raise DamagedError(f"expected the number of a partition, found {name[:40]!r}")
    return int(name)


def _partition(value: object) -> PartitionRead:
    offsets = [integer(each) for each in items(value)]
    if len(offsets) != 4:
        raise DamagedError(f"expected start, end, low and high of a partition, found {len(offsets)} numbers")
    start, end, low, high = offsets
    return PartitionRead(start=start, end=end, low=low, high=high)


def of_gaps(gaps: tuple[GapAccepted, ...]) -> list[Json]:
    """Return `gaps` as JSON fields."""
    return [
        {
            "kind": gap.kind.value,
            "source": gap.source,
            "topic": gap.topic,
            "topic_id": gap.topic_id,
            "partition": gap.partition,
            "first": gap.first,
            "end": gap.end,
        }
        for gap in gaps
    ]


def to_gaps(value: object) -> tuple[GapAccepted, ...]:
    """Return the gaps that `of_gaps` wrote. Raises DamagedError."""
    return tuple(_gap(record(each, _GAP_FIELDS)) for each in items(value))


def _gap(fields: dict[str, object]) -> GapAccepted:
    return GapAccepted(
        kind=_kind(text(fields["kind"])),
        source=SourceName(text(fields["source"])),
        topic=text(fields["topic"]),
        topic_id=text(fields["topic_id"]),
        partition=integer(fields["partition"]),
        first=integer(fields["first"]),
        end=integer(fields["end"]),
    )


def _kind(name: str) -> GapKind:
    try:
        return GapKind(name)
    except ValueError:
        raise DamagedError(f"expected a kind of gap, found {name[:40]!r}") from None
