"""Ways that are compared, in turns."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

Name, Way = TypeVar("Name"), TypeVar("Way")


def in_turns(ways: Mapping[Name, Way], rounds: int) -> Iterator[tuple[Name, Way]]:
    """Each of them once a round, in each round another one first: who follows a fast writer finds a busy disk."""
    every = list(ways.items())
    for turn in range(rounds):
        first = turn % len(every)
        yield from every[first:] + every[:first]
