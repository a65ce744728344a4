"""The offset of a Kinesis source in Spark's checkpoint: how far each shard is read, by sequence numbers.

Sequence numbers are not dense, so the end of a batch names the first and the last record that the batch reads of a shard, and the
last one of the batch before. These bound the batch for ever, wherever the query began. A shard that is read to its end stays in
the offset as long as Kinesis lists it: else it would be taken for a new one.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import FormatTooNew

_KEYS = frozenset({"stream", "created_ms", "shards"})
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOffset:
    """How far one shard is read. `last` is the last record that was read, None before there was any.

    `first` is the first record of the batch that read `last`, and `previous` the last one before that batch. `begins` is where
    reading begins while `last` is None. All records that came before `seen_ms`, by the clock of Kinesis, are read.
    """

    begins: str
    seen_ms: int
    previous: str | None = None
    first: str | None = None
    last: str | None = None
    is_finished: bool = False

    def written(self) -> dict[str, Any]:
        """Return the shard's part of the offset as a JSON object."""
        numbers = {"previous": self.previous, "first": self.first, "last": self.last}
        found = {name: number for name, number in numbers.items() if number is not None}
        begins = {} if self.last is not None else {"begins": self.begins}
        return {**begins, **found, "seen_ms": self.seen_ms, **({"finished": True} if self.is_finished else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisOffset:
    """The end of a batch. `created_ms` distinguishes the stream from a later one of the same name.

    `is_first`: a query that has planned no batch yet begins here.
    """

    stream: str
    created_ms: int
    shards: Mapping[str, ShardOffset] = field(default_factory=dict)
    is_first: bool = False

    def written(self) -> dict[str, Any]:
        """Return the offset as a JSON object. Equal offsets give the same text."""
        shards = {name: self.shards[name].written() for name in sorted(self.shards)}
        note = {"first": True} if self.is_first else {}
        return {"stream": self.stream, "created_ms": self.created_ms, "shards": shards, **note, "version": _VERSION}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRange:
    """The records that a batch reads of one shard, both ends included. `previous`: the last record before them, if any."""

    shard: str
    previous: str | None
    first: str
    last: str


def read_offset(value: Mapping[str, Any]) -> KinesisOffset:
    """Return the offset in the parsed JSON of Penstock's reader of Kinesis. Raises FormatTooNew."""
    if value["version"] > _VERSION:
        raise FormatTooNew(
            f"An offset of stream {value['stream']!r} has version {value['version']}, but this Penstock reads versions up to "
            f"{_VERSION}.",
            remedy="Run the newest Penstock that ever read here, or a newer one.",
        )
    return KinesisOffset(
        stream=value["stream"],
        created_ms=value["created_ms"],
        shards={name: _shard(shard) for name, shard in value["shards"].items()},
        is_first=bool(value.get("first")),
    )


def _shard(value: Mapping[str, Any]) -> ShardOffset:
    return ShardOffset(
        begins=value.get("begins", ""),
        seen_ms=value["seen_ms"],
        previous=value.get("previous"),
        first=value.get("first"),
        last=value.get("last"),
        is_finished=bool(value.get("finished")),
    )


def offset_in(text: str | None) -> KinesisOffset | None:
    """Return the offset that Spark logged, None for None."""
    return None if text is None else read_offset(json.loads(text))


def is_kinesis_offset(value: object) -> bool:
    """Return whether the parsed JSON of an offset is one of a Kinesis source."""
    return isinstance(value, dict) and value.keys() >= _KEYS


def ranges_to(end: KinesisOffset, start: KinesisOffset | None) -> Iterator[ShardRange]:
    """Yield what the batch between two offsets reads, by shard."""
    for name, reached in sorted(end.shards.items()):
        before = None if start is None or name not in start.shards else start.shards[name].last
        if reached.first is not None and reached.last is not None and reached.last != before:
            yield ShardRange(shard=name, previous=reached.previous, first=reached.first, last=reached.last)
