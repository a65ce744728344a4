"""A fake Spark: a source that can be read again, and a checkpoint that plans before a batch and commits after it.

As in Spark, `offsets/N` is written before batch N runs, and `commits/N` after the sink returned, each only if absent. A start
takes the newest offsets; if they have no commit, that batch runs again with the same range. Plans differ from driver to driver.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random

from penstock.core.model import Batch, BatchId, OffsetRange, QueryId, SourceName
from penstock.testing.simulator.errors import SparkStoppedError
from penstock.testing.simulator.stepping import Stepper

_SOURCE = SourceName("events")


@dataclass(slots=True)
class Logs:
    """The content of the checkpoint: the end of every planned batch, and which batches are committed."""

    query_id: QueryId
    ends: dict[int, int] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def copy(self) -> "Logs":
        """Return a copy, like a backup that an operator might restore."""
        return Logs(self.query_id, dict(self.ends), set(self.commits))

    def is_done(self, rows: int) -> bool:
        """Return whether a batch that ends at the source's end is committed."""
        return bool(self.commits) and self.ends[max(self.commits)] == rows

    def lose_newest_commit(self) -> None:
        """Remove the newest commit, as a crash between the sink and the commit would."""
        if self.commits:
            self.commits.discard(max(self.commits))


class Query:
    """One running Spark query on the shared logs."""

    def __init__(self, logs: Logs, *, rows: int, batch_rows: int, random: Random, stepper: Stepper) -> None:
        self._logs = logs
        self._rows = rows
        self._batch_rows = batch_rows
        self._random = random
        self._stepper = stepper
        self._replay = False

    def batches(self) -> Iterator[Batch]:
        """Yield each batch to run, and commit it when the next one is requested. Raises SparkStoppedError."""
        number = self._first()
        while (end := self._planned(number)) is not None:
            start = self._logs.ends.get(number - 1)
            text = None if start is None else str(start)
            offsets = (OffsetRange(source=_SOURCE, start=text, end=str(end)),)
            yield Batch(query_id=self._logs.query_id, batch_id=BatchId(number), offsets=offsets)
            self._do("commit", str(number), partial(self._write_commit, number))
            number += 1

    def _first(self) -> int:
        self._do("read", "offsets")
        newest = max(self._logs.ends, default=-1)
        self._replay = newest >= 0 and newest not in self._logs.commits
        return newest if self._replay else newest + 1

    def _planned(self, number: int) -> int | None:
        if self._replay:
            self._replay = False
            return self._logs.ends[number]
        start = self._logs.ends.get(number - 1, 0)
        if start >= self._rows:
            return None
        end = min(self._rows, start + self._random.randint((self._batch_rows + 1) // 2, self._batch_rows))
        self._do("plan", str(number), partial(self._write_end, number, end))
        return end

    def _write_end(self, number: int, end: int) -> None:
        if number in self._logs.ends:
            raise SparkStoppedError(f"offsets/{number} is there already: another query runs on this checkpoint")
        self._logs.ends[number] = end

    def _write_commit(self, number: int) -> None:
        if number in self._logs.commits:
            raise SparkStoppedError(f"commits/{number} is there already: another query runs on this checkpoint")
        self._logs.commits.add(number)

    def _do(self, operation: str, subject: str, act: Callable[[], None] = lambda: None) -> None:
        fault = self._stepper.before(operation, subject)
        act()
        if fault is not None:
            self._stepper.after(fault, operation)
