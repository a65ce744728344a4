"""A stream of Kinesis in memory that behaves as AWS documents it, with a clock of its own: what the emulator gets wrong included.

Records older than the retention time are gone, and reading after one of them goes on with the oldest that is left, in silence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from penstock.source.kinesis.fetch import batches_of
from penstock.source.kinesis.settings import KinesisSettings
from penstock.source.kinesis.shard import ForeignNumber, IteratorExpired, Page, Record, Shard, StreamSummary
from penstock.source.kinesis.stream import KinesisStream

HOUR_MS = 3_600_000
START_MS = 1_800_000_000_000
_MOST = 2**128 - 1
_ITERATOR_MS = 300_000


@dataclass
class _Held:
    shard: Shard
    born: int
    records: list[Record] = field(default_factory=list)
    closed_ms: int | None = None


class ModelStream:
    """A `Kinesis`. `page_records`: the most records of an answer; `empty_pages`: answers without records before each other."""

    def __init__(self, *, shards: int = 1, retention_h: int = 24, page_records: int = 10_000, empty_pages: int = 0) -> None:
        self.now_ms, self.retention_ms = START_MS, retention_h * HOUR_MS
        self.page_records, self.empty_pages = page_records, empty_pages
        self.reads = 0
        self._numbers = count(10**20)
        self.recreate(shards=shards)

    def recreate(self, *, shards: int = 1) -> None:
        """Delete the stream and create it again: its shards have the same names as before."""
        self.created_ms = self.now_ms
        self._shards: dict[str, _Held] = {}
        step = (_MOST + 1) // shards
        for number in range(shards):
            self._add((), (number * step, (number + 1) * step - 1))

    def put(self, *values: object, shard: int = 0, data: bytes | None = None) -> None:
        """Put records into an open shard, by its place among the open ones."""
        held = self._shards[self.open()[shard]]
        for value in values:
            content = str(value).encode() if data is None else data
            held.records.append(Record(number=str(next(self._numbers)), key="k", data=content, arrived_ms=self.now_ms))

    def open(self) -> list[str]:
        return [name for name, held in self._shards.items() if not held.shard.is_closed]

    def split(self, shard: int = 0) -> None:
        held = self._close(self.open()[shard])
        first, last = held.shard.hashes
        middle = (first + last) // 2
        for hashes in ((first, middle), (middle + 1, last)):
            self._add((held.shard.shard,), hashes)

    def merge(self) -> None:
        """Merge the first two open shards."""
        one, other = (self._close(name) for name in self.open()[:2])
        self._add((one.shard.shard, other.shard.shard), (one.shard.hashes[0], other.shard.hashes[1]))

    def pass_hours(self, hours: float) -> None:
        self.now_ms += round(hours * HOUR_MS)

    def summary(self) -> StreamSummary:
        return StreamSummary(created_ms=self.created_ms, retention_ms=self.retention_ms, now_ms=self.now_ms)

    def shards(self) -> Mapping[str, Shard]:
        horizon_ms = self.now_ms - self.retention_ms
        kept = {name: held for name, held in self._shards.items() if held.closed_ms is None or held.closed_ms > horizon_ms}
        return {name: held.shard for name, held in kept.items()}

    def iterator(self, shard: str, position: str) -> str:
        held = self._shards[shard]
        kind, _, value = position.partition(" ")
        records = held.records
        if kind == "LATEST":
            return self._iterator(shard, int(records[-1].number) + 1 if records else 0)
        if kind == "AT_TIMESTAMP":
            assert int(value) <= self.now_ms, "a time in the future"
            later = (int(each.number) for each in records if each.arrived_ms >= int(value))
            return self._iterator(shard, next(later, int(records[-1].number) + 1 if records else 0))
        if kind == "TRIM_HORIZON":
            return self._iterator(shard, 0)
        if int(value) < held.born:
            raise ForeignNumber(f"StartingSequenceNumber {value} did not come from this stream")
        return self._iterator(shard, int(value) + (kind == "AFTER_SEQUENCE_NUMBER"))

    def page(self, shard: str, iterator: str, *, limit: int) -> Page:
        self.reads += 1
        made_ms, _, rest = iterator.partition("/")
        number, _, empty = rest.partition("/")
        if self.now_ms - int(made_ms) > _ITERATOR_MS:
            raise IteratorExpired
        held = self._shards[shard]
        kept = [each for each in held.records if each.arrived_ms > self.now_ms - self.retention_ms]
        waiting = [each for each in kept if int(each.number) >= int(number)]
        if waiting and int(empty) < self.empty_pages:
            behind_ms = self.now_ms - waiting[0].arrived_ms + 1
            return Page(
                records=(),
                following=self._iterator(shard, int(number), int(empty) + 1),
                behind_ms=behind_ms,
                now_ms=self.now_ms,
            )
        taken = waiting[: min(limit, self.page_records)]
        rest_waits = waiting[len(taken) :]
        behind_ms = self.now_ms - rest_waits[0].arrived_ms + 1 if rest_waits else 0
        is_over = held.shard.is_closed and not rest_waits
        following = None if is_over else self._iterator(shard, int(taken[-1].number) + 1 if taken else int(number))
        return Page(records=tuple(taken), following=following, behind_ms=behind_ms, now_ms=self.now_ms)

    def _iterator(self, shard: str, number: int, empty: int = 0) -> str:
        return f"{self.now_ms}/{number}/{empty}"

    def _add(self, parents: tuple[str, ...], hashes: tuple[int, int]) -> None:
        name = f"shardId-{len(self._shards):012}"
        shard = Shard(shard=name, parents=parents, is_closed=False, hashes=hashes)
        self._shards[name] = _Held(shard, next(self._numbers))

    def _close(self, name: str) -> _Held:
        held = self._shards[name]
        held.shard, held.closed_ms = replace(held.shard, is_closed=True), self.now_ms
        return held


class Reading:
    """A query over a stream: batches one after the other, as Spark asks for them. `start`: the offset that it logged last."""

    def __init__(self, stream: ModelStream, **given: Any) -> None:
        self.stream = stream
        self.settings = KinesisSettings(name="orders", stream="orders", **{"begins": "TRIM_HORIZON", **given})
        self.start: dict[str, Any] | None = None
        self.restart()

    def restart(self) -> None:
        """Lose everything that is not in the offset."""
        self.query = KinesisStream(self.settings, lambda: self.stream, pause=lambda _: None)

    def batch(self) -> list[dict[str, Any]] | None:
        """Return the rows of the next batch, None where there is none."""
        start = self.query.begin() if self.start is None else self.start
        end = self.query.advance(start)
        if end == start:
            return None
        self.start, self.before = end, start
        return self.rows(start, end)

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        pieces = self.query.planned(start, end)
        found = [batches_of(piece, self.settings, self.stream) for piece in pieces]
        return [row for batches in found for batch in batches for row in batch.to_pylist()]

    def batches(self) -> Iterator[list[str]]:
        """Yield the values of each batch until nothing is new."""
        while (rows := self.batch()) is not None:
            yield [row["data"].decode() for row in rows]

    def values(self) -> list[str]:
        return [value for batch in self.batches() for value in batch]
