"""How far a pipeline is behind each topic, and for how long Kafka will still have what is to be read next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.model import SourceName
from penstock.core.topics import TopicRead
from penstock.source.kafka.gaps import TopicNow, gaps_of, lost

if TYPE_CHECKING:
    from penstock.source.kafka.broker import Broker

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
DAY_MS = 24 * 3600 * 1000
_NEAR_PART = 4
"""Loss is near in the last quarter of the retention time, but not before its last day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag:
    """Lag of one topic. `records`: offsets not delivered yet; `behind_ms`: how long ago the oldest of them was written.

    `loss_in_ms`: time until retention may remove that record, by its time stamp (not before; by size it may be sooner); None
    where nothing waits or nothing is ever removed. `lost`: offsets that are gone already, or whose topic is.
    """

    source: SourceName
    topic: str
    topic_id: str | None
    partitions: int
    records: int
    behind_ms: int | None
    loss_in_ms: int | None
    retention_ms: int | None
    lost: int
    gaps: int

    @property
    def is_near_loss(self) -> bool:
        """Whether loss is so near that somebody should act."""
        return is_near_loss(self.loss_in_ms, self.retention_ms)


def is_near_loss(loss_in_ms: int | None, retention_ms: int | None) -> bool:
    """Return whether records that are kept for `retention_ms` expire so soon that somebody should act."""
    return loss_in_ms is not None and retention_ms is not None and loss_in_ms < min(DAY_MS, retention_ms // _NEAR_PART)


def lag_of(read: TopicRead, *, brokers: "Broker", now_ms: int) -> TopicLag:
    """Return the lag of a topic whose last batch was `read`."""
    needed = {number: of.end for number, of in read.partitions.items()}
    found = brokers.topics([read.topic])
    topic = found.get(read.topic)
    gaps = gaps_of(read.source, {read.topic: needed}, known={read.topic: read}, now=found)
    behind = {} if topic is None or topic.topic_id != read.topic_id else _behind(needed, topic)
    written = brokers.written_at_ms({(read.topic, number): needed.get(number, 0) for number in behind}) if behind else {}
    oldest_ms = min(written.values(), default=None)
    retention_ms = None if topic is None else brokers.retention_ms(read.topic)
    return TopicLag(
        source=read.source,
        topic=read.topic,
        topic_id=None if topic is None else topic.topic_id,
        partitions=0 if topic is None else len(topic.partitions),
        records=sum(behind.values()),
        behind_ms=None if oldest_ms is None else max(0, now_ms - oldest_ms),
        loss_in_ms=None if oldest_ms is None or retention_ms is None else oldest_ms + retention_ms - now_ms,
        retention_ms=retention_ms,
        lost=lost(gaps),
        gaps=len(gaps),
    )


def _behind(needed: Mapping[int, int], topic: TopicNow) -> Mapping[int, int]:
    """Return the offsets that wait, for partitions where some do; in a partition added since, all that it has."""
    waiting = {number: retained.high - max(needed.get(number, 0), retained.low) for number, retained in topic.partitions.items()}
    return {number: count for number, count in waiting.items() if count > 0}


def span(milliseconds: int) -> str:
    """Return a rough duration, in the largest unit of which there are two or more."""
    size, unit = next(((size, unit) for size, unit in _UNITS if milliseconds >= 2 * size), _UNITS[-1])
    return f"{milliseconds / size:.0f} {unit}"


def describe_lag(lag: TopicLag) -> str:
    """Describe the lag of one topic in a sentence."""
    if lag.gaps:
        there = f"{lag.lost:,} records that were not delivered are gone, or the topic is another one of that name"
        return f"topic {lag.topic}: {'it does not exist any more' if lag.topic_id is None else there}"
    if lag.records == 0:
        return f"topic {lag.topic}: everything is delivered"
    behind = "" if lag.behind_ms is None else f", the oldest written {span(lag.behind_ms)} ago"
    return f"topic {lag.topic}: {lag.records:,} records behind{behind}; {time_left(lag)}"


def time_left(lag: TopicLag) -> str:
    """Describe how long Kafka still keeps what is to be read next."""
    if lag.loss_in_ms is None:
        return "nothing is removed by age" if lag.retention_ms is None else "none is waiting to be removed"
    if lag.loss_in_ms <= 0:
        return "Kafka may remove it at any moment"
    return f"Kafka may remove it in {span(lag.loss_in_ms)}"
