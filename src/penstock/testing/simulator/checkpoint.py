"""A fake Spark: a source that can be read again, and a checkpoint, which people and crashes change between runs.

As in Spark, `offsets/N` is written before batch N runs, and `commits/N` after the sink returned, each only if absent. A start
takes the newest offsets; if they have no commit, that batch runs again with the same range. Plans differ from driver to driver.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from penstock.core.model import Batch, BatchId, OffsetRange, QueryId, SourceName
from penstock.testing.simulator.schedule import Shape, SparkStoppedError, Stepper, ViolationError
from penstock.testing.simulator.targets import History

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
            self._stepper.do("commit", str(number), partial(self._write_commit, number))
            number += 1

    def _first(self) -> int:
        newest = self._stepper.do("read", "offsets", lambda: max(self._logs.ends, default=-1))
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
        self._stepper.do("plan", str(number), partial(self._write_end, number, end))
        return end

    def _write_end(self, number: int, end: int) -> None:
        if number in self._logs.ends:
            raise SparkStoppedError(f"offsets/{number} is there already: another query runs on this checkpoint")
        self._logs.ends[number] = end

    def _write_commit(self, number: int) -> None:
        if number in self._logs.commits:
            raise SparkStoppedError(f"commits/{number} is there already: another query runs on this checkpoint")
        self._logs.commits.add(number)


class Checkpoints:
    """The checkpoint in use, which may be a wrong one for one run. A running driver stays with the one it started with."""

    def __init__(self, shape: Shape, random: Random, history: History) -> None:
        self._shape = shape
        self._random = random
        self._history = history
        self.logs = self._right = Logs(QueryId("query-0"))
        self.refusal_expected = False
        self._older = self.logs.copy()
        self._every = [self.logs]
        self._committed_before = 0

    @property
    def is_done(self) -> bool:
        """Whether Spark would find no more work, and the checkpoint is the right one."""
        return self.logs.is_done(self._shape.rows) and self._agrees(self.logs)

    def before_start(self) -> None:
        """Restore the right checkpoint if a wrong one was tried; then perhaps replace it or lose its newest commit."""
        self._restore()
        if self._happens(self._shape.wrong_checkpoint):
            query_id = QueryId(f"query-{len(self._every)}")
            started_anew, without_metadata = Logs(query_id), replace(self.logs.copy(), query_id=query_id)
            self.logs = self._random.choice((self._older.copy(), started_anew, without_metadata))
            self._every.append(self.logs)
            self._committed_before = len(self.logs.commits)
            self.refusal_expected = True
        elif self._happens(self._shape.lose_commit):
            self.logs.lose_newest_commit()
        self._older = self.logs.copy()

    def _restore(self) -> None:
        """Take the checkpoint that agrees with the ledger, as an operator would: the right one, or one that was accepted."""
        tried = self.logs
        agreeing = next((logs for logs in (self._right, *self._every) if self._agrees(logs)), None)
        if agreeing is None:
            raise ViolationError("I8: the ledger continues no checkpoint that ever was")
        self.logs = self._right = agreeing
        if tried.query_id != self.logs.query_id and len(tried.commits) > self._committed_before:
            raise ViolationError(f"I1: batches of {tried.query_id} were taken for those of {self.logs.query_id}")

    def _agrees(self, logs: Logs) -> bool:
        return all(
            decided.query_id == logs.query_id and logs.ends.get(decided.batch_id) == decided.end
            for decided in self._history.decided.values()
        )

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability
