"""Changes that people and crashes make to the checkpoint between runs, and which checkpoint the ledger continues."""

from random import Random

from penstock.core.model import QueryId
from penstock.testing.simulator.checkpoint import Logs
from penstock.testing.simulator.errors import ViolationError
from penstock.testing.simulator.history import History
from penstock.testing.simulator.schedule import Shape


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
            self._replace(self._random.choice((self._older.copy, self._deleted, self._without_metadata))())
        elif self._happens(self._shape.lose_commit):
            self.logs.lose_newest_commit()
        self._older = self.logs.copy()

    def _replace(self, wrong: Logs) -> None:
        self.logs = wrong
        self._every.append(wrong)
        self._committed_before = len(wrong.commits)
        self.refusal_expected = True

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

    def _deleted(self) -> Logs:
        """Return the logs of a new start: another query id, and batches that count from 0."""
        return Logs(self._new_query())

    def _without_metadata(self) -> Logs:
        """Return the same logs with another query id, as Spark makes them from a checkpoint without its metadata."""
        return Logs(self._new_query(), dict(self.logs.ends), set(self.logs.commits))

    def _new_query(self) -> QueryId:
        return QueryId(f"query-{len(self._every)}")

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability
