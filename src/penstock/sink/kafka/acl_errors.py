"""Rights that the user of a sink lacks, told by Kafka's own names with the command that gives them."""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from penstock.errors import Failed

WRITE, READ, DESCRIBE_CONFIGS = "Write", "Read", "DescribeConfigs"
_AS_BROKERS_SAY: Final = {WRITE: "WRITE", READ: "READ", DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS"}


class Guarded(Protocol):
    """A topic and what the user may do with it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def allowed(self) -> frozenset[str]:
        """Operations, empty where brokers do not tell."""
        ...


def require_rights(topics: Iterable[Guarded], markers: Guarded | None) -> None:
    """Raise Failed unless the user may write to the topics, and write and read the markers."""
    for topic in topics:
        require(topic, WRITE)
    if markers is not None:
        require(markers, WRITE)
        require(markers, READ)


def require(topic: Guarded, right: str) -> None:
    """Raise Failed unless the user has that right, or brokers do not tell."""
    if lacks(topic, right):
        raise not_allowed(right, f"topic {topic.name!r}", f"--topic {topic.name}")


def lacks(topic: Guarded, right: str) -> bool:
    """Whether it is known that the user has it not."""
    return bool(topic.allowed) and _AS_BROKERS_SAY[right] not in topic.allowed


def not_allowed(right: str, what: str, option: str) -> Failed:
    """The error, with what gives the right."""
    return Failed(f"The user of this sink lacks the right {right} on {what}.", remedy=f"{command(right, option)}.")


def warnings_of(topics: Iterable[Guarded]) -> Iterator[str]:
    """Rights without which a sink delivers, and something else goes wrong."""
    for topic in topics:
        if lacks(topic, READ):
            yield f"the user may not read topic {topic.name}, so that `verify` cannot: {command(READ, f'--topic {topic.name}')}"
        if lacks(topic, DESCRIBE_CONFIGS):
            how = command(DESCRIBE_CONFIGS, f"--topic {topic.name}")
            yield f"the user may not see the settings of topic {topic.name}, so that nobody can tell what it keeps: {how}"


def command(right: str, option: str) -> str:
    """What gives it, for whoever may."""
    return f"kafka-acls --add --allow-principal User:NAME --operation {right} {option}"
