"""Which shards may be read: a shard that was split off or merged only after its parents were read to their end. Pure."""

from collections.abc import Mapping

from penstock.core.kinesis_offset import KinesisOffset, ShardOffset
from penstock.errors import Failed
from penstock.source.kinesis.settings import KinesisSettings
from penstock.source.kinesis.shard import Shard, StreamSummary

_OLDEST = "TRIM_HORIZON"


def readable(known: Mapping[str, ShardOffset], listed: Mapping[str, Shard]) -> dict[str, ShardOffset]:
    """Return the shards that are read next, with where they go on. A shard that `known` lacks begins behind its parents.

    Records of a parent are older than those of its children, so that of one partition key the order is kept.
    """
    found = {name: known[name] for name in listed if name in known and not known[name].is_finished}
    for name, shard in listed.items():
        parents = [parent for parent in shard.parents if parent in known or parent in listed]
        if name not in known and all(parent in known and known[parent].is_finished for parent in parents):
            found[name] = _behind([known[parent] for parent in parents])
    return dict(sorted(found.items()))


def _behind(parents: list[ShardOffset]) -> ShardOffset:
    """Return the beginning of a shard. Where nothing tells of its parents, nothing was seen of what came before."""
    seen_ms = min((parent.seen_ms for parent in parents), default=0)
    unread = [parent.begins for parent in parents if parent.last is None and parent.begins.startswith("AT_TIMESTAMP")]
    return ShardOffset(begins=unread[0] if unread else _OLDEST, seen_ms=seen_ms)


def kept(known: Mapping[str, ShardOffset], listed: Mapping[str, Shard]) -> dict[str, ShardOffset]:
    """Return the shards that stay in the offset: those that are finished only as long as Kinesis lists them."""
    return {name: shard for name, shard in known.items() if not shard.is_finished or name in listed}


def beginning(settings: KinesisSettings, listed: Mapping[str, Shard], stream: StreamSummary) -> KinesisOffset:
    """Return where a query without a checkpoint begins. Raises Failed where the options do not say so for every shard."""
    begins = settings.begins
    if isinstance(begins, str):
        shards = _from(begins, listed, stream.now_ms)
    else:
        shards = _from_each(settings, begins, listed, stream.now_ms)
    return KinesisOffset(stream=settings.stream, created_ms=stream.created_ms, shards=shards, is_first=True)


def _from(begins: str, listed: Mapping[str, Shard], now_ms: int) -> dict[str, ShardOffset]:
    if begins == "LATEST":
        return {name: _latest(shard, now_ms) for name, shard in listed.items()}
    roots = [name for name, shard in listed.items() if not any(parent in listed for parent in shard.parents)]
    return {name: ShardOffset(begins=begins, seen_ms=now_ms) for name in roots}


def _latest(shard: Shard, now_ms: int) -> ShardOffset:
    return ShardOffset(begins=f"LATEST {now_ms}", seen_ms=now_ms, is_finished=shard.is_closed)


def _from_each(
    settings: KinesisSettings, begins: Mapping[str, str], listed: Mapping[str, Shard], now_ms: int
) -> dict[str, ShardOffset]:
    """Return the shards named, and those before them as read. What came of a named shard begins behind it."""
    unknown = sorted(begins.keys() - listed.keys())
    named = {name: _lineage(name, listed) & begins.keys() for name in listed}
    uncovered = [name for name, shard in listed.items() if not shard.is_closed and not named[name]]
    wrong = [
        *(f"names {name}, which the stream does not have" for name in unknown),
        *(f"does not name {name}" for name in uncovered),
    ]
    if wrong:
        raise Failed(
            f"sources.{settings.name}.options.startingPosition must name each open shard, or one that it came of; it {wrong[0]}.",
            remedy=f"Name each. The stream {settings.stream!r} has {', '.join(listed)}.",
        )
    shards = {name: ShardOffset(begins=at, seen_ms=now_ms) for name, at in begins.items() if not at.startswith("LATEST")}
    latest = {name: _latest(listed[name], now_ms) for name, at in begins.items() if at.startswith("LATEST")}
    before = {name: ShardOffset(begins=_OLDEST, seen_ms=now_ms, is_finished=True) for name in listed if not named[name]}
    return {**before, **shards, **latest}


def _lineage(name: str, listed: Mapping[str, Shard]) -> set[str]:
    """Return the shard and all that it came of."""
    found, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one in listed and one not in found:
            found.add(one)
            waiting += listed[one].parents
    return found
