"""Publishing beside the next batch, simulated: it runs between any two steps of the driver, or when it is awaited."""

from random import Random

from penstock.commit.executor import Task
from penstock.errors import PenstockError


class SimulatedDeferredPublish:
    """The `DeferredPublish` of a coordinator: one task at a time, which begins with probability `chance` before each step."""

    def __init__(self, *, chance: float, random: Random) -> None:
        self._chance, self._random = chance, random
        self._task: Task | None = None
        self._failure: PenstockError | None = None

    def __call__(self, task: Task) -> Task:
        """Schedule `task`, and return a function that runs it if it has not run yet, and raises what it raised."""
        self._task = task
        return self._wait

    def perhaps(self) -> None:
        """Begin the task by chance. The driver calls it before each of its steps, including the task's own."""
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
        except PenstockError as failure:  # KilledError and ViolationError must reach the simulation
            self._failure = failure
