"""Ways that are compared, in turns."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

Way = TypeVar("Way")


def in_turns(ways: Mapping[str, Way], rounds: int) -> Iterator[tuple[str, Way]]:
    """Each of them once a round, in each round another one first: who follows a fast writer finds a busy disk."""
    every = list(ways.items())
    for turn in range(rounds):
        first = turn % len(every)
        yield from every[first:] + every[:first]
