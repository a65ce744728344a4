"""What every part measures with: the session, an empty directory, rounds in which writers take turns, and a check of content."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

ROUNDS = 7
SPOILT = 7
"""The number whose row is changed on its way where a run is spoilt."""

Way = TypeVar("Way")


class ContentError(Exception):
    """A writer did not deliver what it was given."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One run of one part. `quick` asks for tiny inputs and one round; `spoilt` for wrong content, which must be noticed."""

    scratch: Path
    session: Callable[[], SparkSession]
    quick: bool = False
    spoilt: bool = False

    @property
    def spark(self) -> SparkSession:
        """The session, started when it is first asked for."""
        return self.session()

    @property
    def rounds(self) -> int:
        """How often every writer is measured."""
        return 1 if self.quick else ROUNDS

    def sized(self, full: int, quick: int) -> int:
        """A number of rows, batches or the like."""
        return quick if self.quick else full

    def in_rounds(
        self, ways: Mapping[str, Way], measured: Callable[[str, Way], float], *, warm_up: bool = False, rounds: int = 0
    ) -> dict[str, list[float]]:
        """The figures of each way, one per round; with `warm_up` there is one round more, whose figures are dropped."""
        taken: dict[str, list[float]] = {name: [] for name in ways}
        if warm_up and not self.quick:
            for name, way in ways.items():
                measured(name, way)
        for name, way in in_turns(ways, min(rounds or self.rounds, self.rounds)):
            taken[name].append(measured(name, way))
        return taken

    def on_its_way(self, frame: DataFrame) -> DataFrame:
        """What a writer is given of `frame`: the same rows, or one of them changed where the run is spoilt."""
        if not self.spoilt:
            return frame
        first, *_, last = frame.columns
        return frame.withColumn(last, F.when(F.col(first) != SPOILT, F.col(last)))


def in_turns(ways: Mapping[str, Way], rounds: int) -> Iterator[tuple[str, Way]]:
    """Each of them once a round, in each round another one first: who follows a fast writer finds a busy disk."""
    every = list(ways.items())
    for turn in range(rounds):
        first = turn % len(every)
        yield from every[first:] + every[:first]


def require_content(found: object, expected: object, *, writer: str) -> None:
    """Raise ContentError unless what `writer` delivered is what it was given."""
    if found != expected:
        raise ContentError(f"{writer} delivered {found}, expected {expected}.")
