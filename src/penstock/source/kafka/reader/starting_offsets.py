"""Where a query begins that has read nothing yet, by the options `startingOffsets…` and `startingTimestamp`."""

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.core.kafka_offset import Positions
from penstock.errors import Failed
from penstock.source.kafka.reader.settings import ReaderSettings
from penstock.source.kafka.topic import RetainedOffsets, TopicNow

_LATEST, _EARLIEST = -1, -2
"""Offsets that stand for the ends of a partition in `startingOffsets`."""


class TimestampQueries(Protocol):
    """The query to the brokers for offsets by time stamp."""

    def since(self, wanted: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int | None]:
        """Return the first offset from a time stamp on, None where there is none yet."""
        ...


def beginning(settings: ReaderSettings, now: Mapping[str, TopicNow], brokers: TimestampQueries) -> Positions:
    """Return the first offset to read of each partition. Raises Failed where the options do not give it for every partition."""
    if settings.starting_ms is not None:
        return _by_time(settings, settings.starting_ms, now, brokers)
    starting = settings.starting
    if isinstance(starting, str):
        return _each(now, lambda retained: retained.low if starting == "earliest" else retained.high)
    _require_all(settings, starting, now, "startingOffsets")
    return {
        topic: {number: _resolved(starting[topic][number], retained) for number, retained in of.partitions.items()}
        for topic, of in now.items()
    }


def _each(now: Mapping[str, TopicNow], which: Callable[[RetainedOffsets], int]) -> Positions:
    return {topic: {number: which(retained) for number, retained in of.partitions.items()} for topic, of in now.items()}


def _resolved(start: int, retained: RetainedOffsets) -> int:
    return {_LATEST: retained.high, _EARLIEST: retained.low}.get(start, start)


def _by_time(
    settings: ReaderSettings, start: int | Positions, now: Mapping[str, TopicNow], brokers: TimestampQueries
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


def _require_all(settings: ReaderSettings, start: Positions, now: Mapping[str, TopicNow], option: str) -> None:
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
