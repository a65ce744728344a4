"""What a driver does beside the next batch: here between any two of its steps, or when it is waited for."""

from random import Random

from penstock.commit.executor import Task
from penstock.errors import PenstockError


class SimulatedDeferredPublish:
    """`DeferredPublish` for a coordinator: one task at a time, which begins with probability `chance` before each step."""

    def __init__(self, *, chance: float, random: Random) -> None:
        self._chance, self._random = chance, random
        self._task: Task | None = None
        self._failure: PenstockError | None = None

    def __call__(self, task: Task) -> Task:
        """Have it done one day; the answer does it now if it is not done yet, and raises what it raised."""
        self._task = task
        return self._wait

    def perhaps(self) -> None:
        """Called before each step of the driver, those of the task itself among them."""
        if self._task is not None and self._random.random() < self._chance:
            self._begin()

    def _wait(self) -> None:
        self._begin()
        if self._failure is not None:
            raise self._failure

    def _begin(self) -> None:
        task, self._task = self._task, None
        try:
            if task is not None:
                task()
        except PenstockError as failure:  # what kills the driver, or is a violation, is nobody's to keep
            self._failure = failure
