"""What a batch read from Kafka and from files, which records were missing, and which transactions are open: frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NewType

SourceName = NewType("SourceName", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """The offsets that a batch reads from one partition: from `start` on and below `end`.

    The broker then held offsets from `low` on and below `high`.
    """

    start: int
    end: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRead:
    """What a batch reads from one topic. `topic_id` distinguishes the topic from a later one of the same name."""

    source: SourceName
    topic: str
    topic_id: str
    partitions: Mapping[int, PartitionRead]


class GapKind(str, Enum):
    """Why records are missing: retention, a recreated or deleted topic, or a broker that lost the end of its log."""

    EXPIRED = "expired"
    RECREATED = "recreated"
    DELETED = "deleted"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapAccepted:
    """Records that the broker no longer had and that the pipeline went on without. They are never delivered.

    Their offsets are from `first` on and below `end`, in the topic of id `topic_id`.
    """

    kind: GapKind
    source: SourceName
    topic: str
    topic_id: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, order=True)
class InputFile:
    """One input file of Spark: its URL as logged, and its modification time when Spark found it."""

    path: str
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRead:
    """The input files of one source that a batch read. Its offsets are only an index into a log that a lost checkpoint takes."""

    source: SourceName
    files: tuple[InputFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What sources show of a batch beside its offsets: topics and files that it read, and records that were missing."""

    topics: tuple[TopicRead, ...] = ()
    gaps: tuple[GapAccepted, ...] = ()
    files: tuple[FilesRead, ...] = ()


NO_EVIDENCE = Evidence()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """One open transaction on one partition: readers of committed records stop at `offset`.

    `transactional_id` is None for a hanging transaction: no coordinator knows it, so only an operator can end it. `open_ms`
    counts from its begin, or from the newest record of a hanging one. `timeout_ms` is the age at which its coordinator ends it,
    None if it hangs.
    """

    topic: str
    partition: int
    offset: int
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    open_ms: int
    timeout_ms: int | None

    @property
    def hangs(self) -> bool:
        """Whether Kafka will never end it by itself."""
        return self.transactional_id is None

    @property
    def name(self) -> str:
        """The name that `penstock doctor --end` accepts for it."""
        return self.transactional_id or f"{self.topic}/{self.partition}/{self.producer_id}"
