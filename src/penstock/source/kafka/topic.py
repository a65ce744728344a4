"""Topics as the broker has them now, and positions in them as Spark writes them into its checkpoint. Values, no client."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Positions: TypeAlias = Mapping[str, Mapping[int, int]]
"""Topic, partition, and the first offset that was not read yet."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the broker holds of a partition: from `low` on and below `high`."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNow:
    """A topic that there is; `topic_id` is another one after it was deleted and created again."""

    topic_id: str
    partitions: Mapping[int, Kept]


def positions_in(offset: str | None) -> Positions:
    """What an offset of Spark's Kafka source says; nothing for one that is not there."""
    if offset is None:
        return {}
    return {topic: {int(number): at for number, at in parts.items()} for topic, parts in json.loads(offset).items()}
