"""The parts of a ledger entry about Kafka: the offsets a batch read, and the gaps that were accepted."""

from collections.abc import Mapping

from penstock.core.codec.fields import INTEGER, TEXT, DamagedError, Field, Record, choice, integer, items, mapping
from penstock.core.model import Json
from penstock.core.topics import GapAccepted, GapKind, PartitionRead, TopicRead


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


def _of_partitions(partitions: Mapping[int, PartitionRead]) -> Json:
    """Return each partition as a short list, because there may be thousands of partitions."""
    return {str(number): [of.start, of.end, of.low, of.high] for number, of in partitions.items()}


def _to_partitions(value: object) -> Mapping[int, PartitionRead]:
    found = mapping(value)
    return {_number(name): _partition(found[name]) for name in sorted(found, key=_number)}


TOPIC = Record(TopicRead, {"source": TEXT, "topic": TEXT, "topic_id": TEXT, "partitions": Field(_of_partitions, _to_partitions)})
GAP = Record(
    GapAccepted,
    {
        "kind": choice(GapKind, "a kind of gap"),
        "source": TEXT,
        "topic": TEXT,
        "topic_id": TEXT,
        "partition": INTEGER,
        "first": INTEGER,
        "end": INTEGER,
    },
)
