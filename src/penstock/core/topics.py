"""What a batch read from Kafka, and what was missing there: frozen values that a decision holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NewType

SourceName = NewType("SourceName", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """What a batch is of one partition: offsets from `start` on and below `end`.

    The broker then held those from `low` on and below `high`.
    """

    start: int
    end: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRead:
    """What a batch is of one topic, known by its id: another topic of that name has another one."""

    source: SourceName
    topic: str
    topic_id: str
    partitions: Mapping[int, PartitionRead]


class GapKind(str, Enum):
    """How records came to be missing: by retention, or with their topic, or because the broker lost the end of its log."""

    EXPIRED = "expired"
    RECREATED = "recreated"
    DELETED = "deleted"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapAccepted:
    """Records that the broker did not have any more, and that the pipeline went on without: never delivered.

    Their offsets are from `first` on and below `end`, in the topic of that id.
    """

    kind: GapKind
    source: SourceName
    topic: str
    topic_id: str
    partition: int
    first: int
    end: int
