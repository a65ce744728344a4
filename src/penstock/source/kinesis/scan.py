"""Reads one shard on the driver to find where a batch ends there, and whether records before it are gone.

Kinesis counts no records and does not say where a shard ends: to know the last record of a batch, somebody reads up to it. After
a record that has expired Kinesis goes on with the oldest one it has, in silence. So reading goes on at the last record that was
read: if it is there, nothing behind it has expired. If it is not, what came later may have expired too, unless the shard was seen
at its end within the retention time.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from penstock.core.kinesis_offset import ShardOffset
from penstock.errors import InputLost
from penstock.source.kinesis.settings import KinesisSettings
from penstock.source.kinesis.shard import IteratorExpired, Kinesis, Page, Record, Shard, StreamSummary

_PAGE = 10_000
"""The most records of one answer."""
_MARGIN_MS = 60_000
"""By how much clocks may differ, and a record be visible later than it arrived."""
_SECOND_MS = 1_000
_TRIES = 3
GO_ON = (
    "Raise the stream's retention if records often wait for long. To go on without these put the checkpoint aside and begin a "
    "new one (`penstock adopt`): `startingPosition` names AFTER_SEQUENCE_NUMBER for each shard that lost nothing, and "
    "TRIM_HORIZON for the others."
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a shard a batch may have. `until_ms`: records that arrived later are left for another run."""

    records: int
    size_bytes: int
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """How far a shard was read: `reached`, `records` records on. `oldest_ms`: when the first of them arrived.

    `following` goes on behind them, None unless the shard was read to its present end, which `is_at_tip` says.
    """

    reached: ShardOffset
    records: int = 0
    oldest_ms: int | None = None
    is_at_tip: bool = False
    following: str | None = None
    now_ms: int = 0


def scan_shard(
    kinesis: Kinesis,
    settings: KinesisSettings,
    shard: Shard,
    start: ShardOffset,
    *,
    stream: StreamSummary,
    limits: Limits,
    held: str | None = None,
) -> Scan:
    """Read the shard from `start` on, up to its present end or to a limit. `held`: an iterator there from an earlier scan.

    Raises InputLost if records before it may be gone, ForeignNumber, Retryable, Failed.
    """
    begin = partial(_Scanning, kinesis, settings, shard, start, stream=stream, limits=limits)
    for _ in range(_TRIES - 1):
        try:
            return begin().read(held)
        except IteratorExpired:  # it is five minutes old: the position is looked up anew
            held = None
    return begin().read(None)


class _Scanning:
    """One scan, from its first page to its last."""

    def __init__(
        self,
        kinesis: Kinesis,
        settings: KinesisSettings,
        shard: Shard,
        start: ShardOffset,
        *,
        stream: StreamSummary,
        limits: Limits,
    ) -> None:
        self._kinesis, self._settings, self._shard, self._start = kinesis, settings, shard, start
        self._stream, self._limits = stream, limits
        self._first: Record | None = None
        self._last: Record | None = None
        self._records = self._size = 0
        self._is_full = False

    def read(self, held: str | None) -> Scan:
        start, name = self._start, self._shard.shard
        is_sure = held is not None
        iterator: str | None = held or self._kinesis.iterator(name, position_of(start))
        while True:
            assert iterator is not None
            limit = min(_PAGE, self._limits.records - self._records + (not is_sure))
            page = self._kinesis.page(name, iterator, limit=limit)
            records = page.records
            is_at_tip = page.behind_ms == 0 and len(records) < limit
            if not is_sure and (records or is_at_tip or page.following is None):
                records = self._continued(page)
                is_sure = True
            self._take(records)
            if self._is_full or page.following is None or (is_at_tip and not self._shard.is_closed):
                return self._scan(page, is_at_tip=is_at_tip)
            iterator = page.following

    def _continued(self, page: Page) -> tuple[Record, ...]:
        """Return the records of the first page that are new. Raises InputLost."""
        if self._start.last is not None and page.records and page.records[0].number == self._start.last:
            return page.records[1:]
        kept_from_ms = page.now_ms - self._stream.retention_ms
        if self._start.seen_ms - _MARGIN_MS <= kept_from_ms:
            lost = records_lost(self._settings, self._shard.shard, self._start, page)
            if self._settings.fails_on_loss:
                raise lost
            _log.warning("%s", lost.message)
        return page.records

    def _take(self, records: tuple[Record, ...]) -> None:
        until = self._limits.until_ms
        for record in records:
            if (until is not None and record.arrived_ms > until) or self._has_reached_limit():
                self._is_full = True
                return
            self._first, self._last = self._first or record, record
            self._records += 1
            self._size += record.size_bytes
        self._is_full = self._has_reached_limit()

    def _has_reached_limit(self) -> bool:
        return self._records >= self._limits.records or self._size >= self._limits.size_bytes

    def _scan(self, page: Page, *, is_at_tip: bool) -> Scan:
        start, last = self._start, self._last
        is_all = not self._is_full or (last is not None and bool(page.records) and page.records[-1] == last)
        is_finished = is_all and page.following is None
        is_at_tip = is_all and (is_at_tip or is_finished)
        is_seen_now = is_at_tip and not is_finished  # records in the shards that follow may be as old as the end of this one
        seen_ms = max(start.seen_ms, 0 if last is None else last.arrived_ms, page.now_ms if is_seen_now else 0)
        reached = replace(start, seen_ms=seen_ms, is_finished=is_finished)
        if last is not None and self._first is not None:
            reached = replace(reached, previous=start.last, first=self._first.number, last=last.number)
        return Scan(
            reached=reached,
            records=self._records,
            oldest_ms=None if self._first is None else self._first.arrived_ms,
            is_at_tip=is_at_tip,
            following=page.following if is_at_tip else None,
            now_ms=page.now_ms,
        )


def position_of(start: ShardOffset) -> str:
    """Return where reading goes on, as Kinesis takes it: at the last record that was read, to see that it is still there."""
    if start.last is not None:
        return f"AT_SEQUENCE_NUMBER {start.last}"
    kind, _, value = start.begins.partition(" ")
    return f"AT_TIMESTAMP {value}" if kind == "LATEST" else start.begins


def records_lost(settings: KinesisSettings, shard: str, start: ShardOffset, page: Page) -> InputLost:
    """Return the error that records behind `start` may have expired."""
    behind = f"sequence number {start.last}" if start.last is not None else f"where it begins ({start.begins or 'TRIM_HORIZON'})"
    hours = (page.now_ms - start.seen_ms) / 3_600_000
    found = page.records[0] if page.records else None
    there = (
        "holds no record now" if found is None else f"now begins with {found.number}, which arrived at {_time(found.arrived_ms)}"
    )
    return InputLost(
        f"Shard {shard} of stream {settings.stream!r} was read up to {behind}, and everything that arrived before "
        f"{_time(start.seen_ms)}, {hours:.1f} hours ago. The stream does not keep records for so long, and the shard {there}: "
        "what arrived in between and expired was not delivered.",
        remedy=GO_ON,
    )


def shards_lost(settings: KinesisSettings, missing: Mapping[str, ShardOffset]) -> InputLost:
    """Return the error that shards are not listed any more before they were read to their end."""
    name, start = next(iter(sorted(missing.items())))
    more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
    behind = f"sequence number {start.last}" if start.last is not None else "its beginning"
    return InputLost(
        f"Shard {name} of stream {settings.stream!r}{more} was read up to {behind}, and not to its end; Kinesis does not list it "
        f"any more: all of it has expired. What arrived there after {_time(start.seen_ms)} was not delivered.",
        remedy=GO_ON,
    )


def recreated(settings: KinesisSettings, created_ms: int, stream: StreamSummary) -> InputLost:
    """Return the error that the stream is another one of that name."""
    return InputLost(
        f"Stream {settings.stream!r} was deleted and created again: it was created at {_time(created_ms)}, now it says "
        f"{_time(stream.created_ms)}. What was not delivered of the old one is gone.",
        remedy="To read the new one put the checkpoint aside and begin a new one (`penstock adopt`), with "
        "`startingPosition: TRIM_HORIZON` to have all of it.",
    )


def _time(ms: int) -> str:
    from datetime import datetime, timezone  # noqa: PLC0415 - for messages only

    return datetime.fromtimestamp(ms / _SECOND_MS, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
