"""Errors and warnings about ACLs that the user of a Kafka sink lacks, by Kafka's names, with the command that grants each."""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from penstock.errors import Failed

WRITE, READ, DESCRIBE_CONFIGS = "Write", "Read", "DescribeConfigs"
_AS_BROKERS_SAY: Final = {WRITE: "WRITE", READ: "READ", DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS"}


class Guarded(Protocol):
    """A topic and the operations that the user may do on it."""

    @property
    def name(self) -> str: ...

    @property
    def allowed(self) -> frozenset[str]:
        """Operations by Kafka's names; empty where brokers do not report them."""
        ...


def require_rights(topics: Iterable[Guarded], markers: Guarded | None) -> None:
    """Raise Failed unless the user may write to `topics`, and write and read `markers`."""
    for topic in topics:
        require(topic, WRITE)
    if markers is not None:
        require(markers, WRITE)
        require(markers, READ)


def require(topic: Guarded, right: str) -> None:
    """Raise Failed if the user is known to lack `right` on `topic`."""
    if lacks(topic, right):
        raise not_allowed(right, f"topic {topic.name!r}", f"--topic {topic.name}")


def lacks(topic: Guarded, right: str) -> bool:
    """Return whether the user is known to lack `right` on `topic`; False where brokers do not report rights."""
    return bool(topic.allowed) and _AS_BROKERS_SAY[right] not in topic.allowed


def not_allowed(right: str, what: str, option: str) -> Failed:
    """Return the error for a missing right, with the command that grants it."""
    return Failed(f"The user of this sink lacks the right {right} on {what}.", remedy=f"{command(right, option)}.")


def warnings_of(topics: Iterable[Guarded]) -> Iterator[str]:
    """Yield a warning for each missing right that delivery does without: Read (for `verify`) and DescribeConfigs."""
    for topic in topics:
        if lacks(topic, READ):
            yield f"the user may not read topic {topic.name}, so that `verify` cannot: {command(READ, f'--topic {topic.name}')}"
        if lacks(topic, DESCRIBE_CONFIGS):
            how = command(DESCRIBE_CONFIGS, f"--topic {topic.name}")
            yield f"the user may not see the settings of topic {topic.name}, so that nobody can tell what it keeps: {how}"


def command(right: str, option: str) -> str:
    """Return the command by which an administrator grants `right`."""
    return f"kafka-acls --add --allow-principal User:NAME --operation {right} {option}"
