"""Checks that a source's options still name every topic and partition that was read.

Spark goes on without a topic that they leave out, and reads it from its first record when they name it again.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.core.kafka_offset import Positions
from penstock.core.model import SourceName
from penstock.errors import SourcesChanged
from penstock.source.kafka.reader.settings import assigned_in, names_in
from penstock.spec.source import Source


def require_named(name: SourceName, source: Source, read: Positions) -> None:
    """Raise SourcesChanged unless the options name every partition of `read`."""
    left = next(_left_out(source, read), None)
    if left is not None:
        raise SourcesChanged(
            f"Source {name!r} has read {left}, which its options do not name any more.",
            remedy="Name it again. To go on without it, put the checkpoint aside and begin a new one (`penstock adopt`), with "
            "`startingOffsets` where the other topics stand.",
        )


def _left_out(source: Source, read: Positions) -> Iterator[str]:
    lowered = {option.lower(): str(value) for option, value in source.options.items()}
    assigned, names = assigned_in(lowered.get("assign")), names_in(lowered.get("subscribe"))
    if assigned is not None:
        return _partitions_left_out(assigned, read)
    if names is not None:
        return _problems(topic for topic in read if topic not in names)
    return _problems(_unmatched(lowered.get("subscribepattern", ".*"), read))


def _partitions_left_out(assigned: Mapping[str, Sequence[int]], read: Positions) -> Iterator[str]:
    yield from _problems(topic for topic in read if topic not in assigned)
    for topic, partitions in read.items():
        yield from (f"partition {number} of topic {topic!r}" for number in partitions if number not in assigned.get(topic, ()))


def _unmatched(pattern: str, read: Positions) -> Iterable[str]:
    """Return the topics in which the pattern is found nowhere, as both readers search; none for a pattern of Java's alone."""
    try:
        named = re.compile(pattern)
    except re.error:
        return []
    return (topic for topic in read if named.search(topic) is None)


def _problems(topics: Iterable[str]) -> Iterator[str]:
    return (f"topic {topic!r}" for topic in topics)
