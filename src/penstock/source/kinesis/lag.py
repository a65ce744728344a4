"""How far a pipeline is behind each stream, and for how long Kinesis will still have what is to be read next."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.core.kinesis_offset import KinesisOffset, offset_in, ranges_to
from penstock.core.model import OffsetRange, SourceName
from penstock.errors import InputLost
from penstock.source.kafka.lag import is_near_loss, span
from penstock.source.kinesis.lineage import readable
from penstock.source.kinesis.scan import Limits, Scan, recreated, scan_shard, shards_lost
from penstock.source.kinesis.settings import KinesisSettings
from penstock.source.kinesis.shard import ForeignNumber, Kinesis, Shard, StreamSummary

_ONE = Limits(records=1, size_bytes=1)
Connect = Callable[[KinesisSettings], Kinesis]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLag:
    """Lag of one stream. `waiting`: shards with records that are not delivered yet; Kinesis does not count the records.

    `behind_ms`: how long ago the oldest of them arrived; `loss_in_ms`: time until it expires, None where nothing waits. `gap`:
    why records that were not delivered may be gone, or the stream is another one of that name. `has_begun`: whether anything was
    decided.
    """

    source: SourceName
    stream: str
    shards: int
    waiting: int
    behind_ms: int | None
    loss_in_ms: int | None
    retention_ms: int
    gap: str | None = None
    has_begun: bool = True

    @property
    def is_near_loss(self) -> bool:
        """Whether loss is so near that somebody should act."""
        return is_near_loss(self.loss_in_ms, self.retention_ms)


def lag_of(source: SourceName, settings: KinesisSettings, delivered: str | None, *, connect: Connect) -> StreamLag:
    """Return the lag behind `delivered`, an offset as Spark logs it; None: nothing is. Raises Retryable, Failed."""
    kinesis = connect(settings)
    stream, listed = kinesis.summary(), kinesis.shards()
    known = offset_in(delivered)
    lag = StreamLag(
        source=source,
        stream=settings.stream,
        shards=sum(not shard.is_closed for shard in listed.values()),
        waiting=0,
        behind_ms=None,
        loss_in_ms=None,
        retention_ms=stream.retention_ms,
        has_begun=known is not None,
    )
    if known is None:
        return lag
    try:
        scans = list(_scans(kinesis, settings, known, listed, stream))
    except InputLost as error:
        return replace(lag, gap=error.message)
    oldest = [(scan.oldest_ms, scan.now_ms) for scan in scans if scan.oldest_ms is not None]
    if not oldest:
        return lag
    arrived_ms, now_ms = min(ms for ms, _ in oldest), max(now_ms for _, now_ms in oldest)
    behind_ms = max(0, now_ms - arrived_ms)
    return replace(lag, waiting=len(oldest), behind_ms=behind_ms, loss_in_ms=stream.retention_ms - behind_ms)


def _scans(
    kinesis: Kinesis, settings: KinesisSettings, known: KinesisOffset, listed: Mapping[str, Shard], stream: StreamSummary
) -> Iterator[Scan]:
    """Yield the first record that waits in each shard. Raises InputLost."""
    if known.created_ms != stream.created_ms:
        raise recreated(settings, known.created_ms, stream)
    lost = {name: shard for name, shard in known.shards.items() if not shard.is_finished and name not in listed}
    if lost and settings.fails_on_loss:
        raise shards_lost(settings, lost)
    for name, start in readable(known.shards, listed).items():
        try:
            yield scan_shard(kinesis, settings, listed[name], start, stream=stream, limits=_ONE)
        except ForeignNumber as error:
            raise recreated(settings, known.created_ms, stream) from error


def missing_of_stream(settings: KinesisSettings, offsets: OffsetRange, *, connect: Connect) -> str | None:
    """Return what is missing of the records of a batch, as the end of a sentence; None if all are there."""
    end = offset_in(offsets.end)
    ranges = [] if end is None else list(ranges_to(end, offset_in(offsets.start)))
    if end is None or not ranges:
        return None
    kinesis = connect(settings)
    if kinesis.summary().created_ms != end.created_ms:
        return f"stream {settings.stream} was deleted and created again"
    listed = kinesis.shards()
    for each in ranges:
        if each.shard not in listed or not _is_there(kinesis, each.shard, each.first):
            return f"records from {each.first} on of shard {each.shard} of stream {settings.stream} have expired"
    return None


def _is_there(kinesis: Kinesis, shard: str, number: str) -> bool:
    iterator: str | None = kinesis.iterator(shard, f"AT_SEQUENCE_NUMBER {number}")
    while iterator is not None:
        page = kinesis.page(shard, iterator, limit=1)
        if page.records or page.behind_ms == 0:
            return bool(page.records) and page.records[0].number == number
        iterator = page.following
    return False


def describe_lag(lag: StreamLag) -> str:
    """Describe the lag of one stream in a sentence."""
    if lag.gap is not None:
        return f"stream {lag.stream}: {lag.gap}"
    if not lag.has_begun:
        return f"stream {lag.stream}: nothing was read yet"
    if lag.behind_ms is None:
        return f"stream {lag.stream}: everything is delivered"
    return (
        f"stream {lag.stream}: records wait in {lag.waiting} shard{'' if lag.waiting == 1 else 's'}, the oldest arrived "
        f"{span(lag.behind_ms)} ago; {time_left(lag)}"
    )


def time_left(lag: StreamLag) -> str:
    """Describe how long Kinesis still keeps what is to be read next."""
    if lag.loss_in_ms is None:
        return "none is waiting to expire"
    return "Kinesis may remove it at any moment" if lag.loss_in_ms <= 0 else f"Kinesis removes it in {span(lag.loss_in_ms)}"
