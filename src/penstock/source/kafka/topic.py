"""Topics as the brokers have them now: values, no client."""

from collections.abc import Mapping
from dataclasses import dataclass


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
