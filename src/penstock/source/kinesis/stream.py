"""The offsets of one query over a stream: where it begins, and how far the next batch goes. Knows neither Spark nor boto3."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.kinesis_offset import KinesisOffset, ShardOffset, ranges_to, read_offset
from penstock.errors import Failed, Refused
from penstock.source.kinesis.lineage import beginning, kept, readable
from penstock.source.kinesis.scan import Limits, Scan, recreated, scan_shard, shards_lost
from penstock.source.kinesis.settings import KinesisSettings
from penstock.source.kinesis.shard import ForeignNumber, Hashes, Kinesis, Shard, StreamSummary

_LOOKS_EVERY_S = 0.5
"""The shortest time between two looks, so that a query that waits leaves the shards' limits to others."""
_SUMMARY_S = 10.0
"""How long what Kinesis says about the stream is trusted: an account may ask 20 times a second, for all of its streams."""
_THREADS = 16
_SECOND_MS = 1_000
_STALE_PART = 4
"""Of the retention time: after so much of it a shard that gets no record is noted as seen, by a batch without rows if need be."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one task reads: records of a shard, from `first` to `last`. `hashes`: the shard's."""

    shard: str
    first: str
    last: str
    hashes: Hashes


class KinesisStream:
    """The offsets of one query, in one process on the driver. Raises InputLost, Retryable, Failed, Refused."""

    def __init__(
        self,
        settings: KinesisSettings,
        connect: Callable[[], Kinesis],
        *,
        now_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._connect, self._now_s, self._pause = settings, connect, now_s, pause
        self._client: Kinesis | None = None
        self._stream: tuple[float, StreamSummary] | None = None
        self._held: dict[str, tuple[ShardOffset, str]] = {}
        self._until_ms: int | None = None
        self._done: set[str] = set()
        self._looked_s: float | None = None
        self._newest: dict[str, Any] | None = None

    def begin(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins. Its first batch may be empty: from then on the checkpoint says it."""
        stream, listed = self._summary(is_new=True), self._kinesis.shards()
        offset = beginning(self._settings, listed, stream)
        for name, shard in offset.shards.items():
            if shard.begins.startswith("LATEST") and not shard.is_finished:
                self._held[name] = (shard, self._kinesis.iterator(name, "LATEST"))
        return offset.written()

    def stop_at_now(self) -> None:
        """Stop at the shards' present ends: read nothing that arrives later."""
        self._until_ms = self._summary(is_new=True).now_ms + _SECOND_MS
        self._done = set()

    def advance(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Return where the batch ends that begins at `start`; `start` itself if there is nothing new."""
        known = read_offset(start)
        self._wait()
        self._require_same(known)
        listed = self._kinesis.shards()
        known = self._without_lost(known, listed)
        ready = readable(known.shards, listed)
        scans = self._scanned({name: at for name, at in ready.items() if name not in self._done}, listed)
        self._keep(scans, listed)
        reached = {name: scan.reached for name, scan in scans.items()}
        offset = replace(known, shards={**kept(known.shards, listed), **ready, **reached}, is_first=False)
        if not known.is_first and not self._is_worth_a_batch(known, offset):
            return dict(start)
        self._require_same(known, is_new=True)  # an iterator of a stream that is gone may read the new one of its name
        self._newest = offset.written()
        return self._newest

    def planned(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Piece]:
        """Return what the tasks of the batch read: the same for the same offsets. Tasks raise where records are gone."""
        first, last = read_offset(start), read_offset(end)
        self._require_same(last)
        ranges = list(ranges_to(last, first))
        odd = next((each for each in ranges if each.previous != _last_of(first, each.shard)), None)
        if odd is not None:
            raise Refused(
                f"A batch of source {self._settings.name!r} begins behind {_last_of(first, odd.shard)} of {odd.shard}, and was "
                f"planned to begin behind {odd.previous}.",
                remedy="The checkpoint holds offsets that do not belong together: `penstock checkpoint verify` says which.",
            )
        listed = self._kinesis.shards() if ranges else {}
        missing = {each.shard: last.shards[each.shard] for each in ranges if each.shard not in listed}
        if missing:
            self._require_allowed({name: _before(shard) for name, shard in missing.items()})
        there = [each for each in ranges if each.shard in listed]
        return [Piece(shard=each.shard, first=each.first, last=each.last, hashes=listed[each.shard].hashes) for each in there]

    def newest(self) -> dict[str, Any] | None:
        """Return how far the shards went at the last look; None before there was any."""
        return self._newest

    @property
    def _kinesis(self) -> Kinesis:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _wait(self) -> None:
        now_s = self._now_s()
        if self._looked_s is not None and self._until_ms is None:
            self._pause(max(0.0, self._looked_s + _LOOKS_EVERY_S - now_s))
        self._looked_s = self._now_s()

    def _summary(self, *, is_new: bool = False) -> StreamSummary:
        now_s = self._now_s()
        if is_new or self._stream is None or now_s - self._stream[0] > _SUMMARY_S:
            self._stream = (now_s, self._kinesis.summary())
        return self._stream[1]

    def _require_same(self, known: KinesisOffset, *, is_new: bool = False) -> None:
        """Raise unless the stream is the one that was read."""
        if known.stream != self._settings.stream:
            raise Refused(
                f"Source {self._settings.name!r} has read stream {known.stream!r}, and its option streamName says "
                f"{self._settings.stream!r}.",
                remedy="Name it again. To read another stream put the checkpoint aside and begin a new one (`penstock adopt`).",
            )
        stream = self._summary(is_new=is_new)
        if stream.created_ms != known.created_ms:
            raise recreated(self._settings, known.created_ms, stream)

    def _without_lost(self, known: KinesisOffset, listed: Mapping[str, Shard]) -> KinesisOffset:
        """Return the offset without shards that expired before they were read, which raise InputLost unless that is allowed."""
        missing = {name: shard for name, shard in known.shards.items() if not shard.is_finished and name not in listed}
        if not missing:
            return known
        self._require_same(known, is_new=True)
        self._require_allowed(missing)
        return replace(known, shards={name: shard for name, shard in known.shards.items() if name not in missing})

    def _require_allowed(self, missing: Mapping[str, ShardOffset]) -> None:
        lost = shards_lost(self._settings, missing)
        if self._settings.fails_on_loss:
            raise lost
        _log.warning("%s", lost.message)

    def _scanned(self, ready: Mapping[str, ShardOffset], listed: Mapping[str, Shard]) -> dict[str, Scan]:
        if not ready:
            return {}
        with ThreadPoolExecutor(min(_THREADS, len(ready))) as threads:
            found = threads.map(lambda name: self._scan(listed[name], ready[name], among=len(ready)), ready)
            return dict(zip(ready, found, strict=True))

    def _scan(self, shard: Shard, start: ShardOffset, *, among: int) -> Scan:
        at, held = self._held.get(shard.shard, (None, None))
        is_there = at is not None and (at.last, at.begins) == (start.last, start.begins)
        given = self._settings
        limits = Limits(
            records=max(1, given.max_records // among), size_bytes=max(1, given.max_bytes // among), until_ms=self._until_ms
        )
        stream = self._summary()
        try:
            return scan_shard(self._kinesis, given, shard, start, stream=stream, limits=limits, held=held if is_there else None)
        except ForeignNumber as error:
            now = self._kinesis.summary()
            if now.created_ms != stream.created_ms:
                raise recreated(given, stream.created_ms, now) from error
            raise Failed(
                f"Shard {shard.shard} of stream {given.stream!r} does not take sequence number {start.last}: {error}.",
                remedy="See whether endpoint and region are those where the pipeline read before.",
            ) from error

    def _keep(self, scans: Mapping[str, Scan], listed: Mapping[str, Shard]) -> None:
        self._held = {name: (scan.reached, scan.following) for name, scan in scans.items() if scan.following is not None}
        if self._until_ms is not None:
            self._done |= {name for name, scan in scans.items() if scan.is_at_tip and not listed[name].is_closed}

    def _is_worth_a_batch(self, known: KinesisOffset, offset: KinesisOffset) -> bool:
        """Return whether rows wait, a shard ended or began, or a quiet shard was not noted as seen for long."""
        stale_ms = self._summary().retention_ms // _STALE_PART
        for name, shard in offset.shards.items():
            before = known.shards.get(name)
            if before is None or (before.last, before.is_finished) != (shard.last, shard.is_finished):
                return True
            if shard.seen_ms - before.seen_ms > stale_ms:
                return True
        return False


def _last_of(offset: KinesisOffset, shard: str) -> str | None:
    return offset.shards[shard].last if shard in offset.shards else None


def _before(shard: ShardOffset) -> ShardOffset:
    return replace(shard, last=shard.previous)
