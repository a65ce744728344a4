"""How publications run: side by side or in turn, and before Spark goes on or beside the next batch."""

from collections.abc import Callable, Sequence
from threading import Lock

from penstock.core.model import Published
from penstock.errors import PenstockError

Task = Callable[[], None]
Executor = Callable[[Sequence[Callable[[], Published]]], Sequence["Published | PenstockError"]]
DeferredPublish = Callable[[Task], Task]
"""Starts a task and returns a function that waits for its end and raises what it raised, on every call. One task at a time."""


def one_by_one(tasks: Sequence[Callable[[], Published]]) -> Sequence[Published | PenstockError]:
    """Run publications in turn; an error of one does not keep the others from being published."""
    return [outcome_of(task) for task in tasks]


def outcome_of(task: Callable[[], Published]) -> Published | PenstockError:
    """Return the task's result, or the PenstockError that it raised."""
    try:
        return task()
    except PenstockError as error:
        return error


def immediately(task: Task) -> Task:
    """Run the task before returning."""
    task()
    return _nothing


def _nothing() -> None:
    return None


class Outstanding:
    """The newest task that was started. One thread starts tasks; any thread may wait, at any time.

    Concurrent callers share one wait and all receive its exception, as does every later caller.
    """

    def __init__(self) -> None:
        self._waiting = Lock()
        self._task = _nothing

    def take(self, task: Task) -> None:
        """Called with what waits for the task that was just started, after the previous task was waited for."""
        with self._waiting:
            self._task = task

    def wait(self) -> None:
        """Wait until the task has ended. Raises what it raised."""
        with self._waiting:
            self._task()
            self._task = _nothing
