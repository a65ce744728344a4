"""What Kinesis tells of a stream and its shards: frozen values, and the protocol of a client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Hashes = tuple[int, int]
"""The hash keys of a shard, both ends included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """A stream that exists. `created_ms` is another one after it was deleted and created again; `now_ms`: Kinesis' clock."""

    created_ms: int
    retention_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A shard that Kinesis lists. `parents`: those that it was split from or merged of; some may not be listed any more."""

    shard: str
    parents: tuple[str, ...]
    is_closed: bool
    hashes: Hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a shard. `arrived_ms` is approximate."""

    number: str
    key: str
    data: bytes
    arrived_ms: int

    @property
    def size_bytes(self) -> int:
        return len(self.data) + len(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer of a shard. `following`: the iterator of the next one, None where a closed shard ends.

    An empty page does not mean the end: `behind_ms` says how far behind the newest record it is. `now_ms`: Kinesis' clock.
    """

    records: tuple[Record, ...]
    following: str | None
    behind_ms: int
    now_ms: int


class IteratorExpired(Exception):
    """An iterator is older than five minutes."""


class ForeignNumber(Exception):
    """A sequence number is not one of this shard, as after the stream was deleted and created again."""


class Kinesis(Protocol):
    """Asks Kinesis about one stream. Raises Retryable if it does not answer, Failed if it refuses or there is no such stream."""

    def summary(self) -> StreamSummary: ...

    def shards(self) -> Mapping[str, Shard]:
        """Return all shards that Kinesis lists: open ones, and closed ones until their last record has expired."""
        ...

    def iterator(self, shard: str, position: str) -> str:
        """Return an iterator at `position`, such as `TRIM_HORIZON` or `AT_SEQUENCE_NUMBER 49…`. Raises ForeignNumber."""
        ...

    def page(self, shard: str, iterator: str, *, limit: int) -> Page:
        """Return up to `limit` records. Waits as long as the shard's limit of five reads a second demands.

        Raises IteratorExpired.
        """
        ...
