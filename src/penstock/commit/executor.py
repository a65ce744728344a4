"""How publications run: side by side or in turn, and before a batch is done or beside the next one."""

from collections.abc import Callable, Sequence
from threading import Lock

from penstock.core.model import Published
from penstock.errors import PenstockError

Task = Callable[[], None]
Executor = Callable[[Sequence[Callable[[], Published]]], Sequence["Published | PenstockError"]]
DeferredPublish = Callable[[Task], Task]
"""Starts a task, and gives what waits for its end and raises what it raised, as often as it is called. One task at a time."""


def one_by_one(tasks: Sequence[Callable[[], Published]]) -> Sequence[Published | PenstockError]:
    """Run publications in turn; an error of one does not keep the others from being published."""
    return [outcome_of(task) for task in tasks]


def outcome_of(task: Callable[[], Published]) -> Published | PenstockError:
    """What it gave, or the error that it raised."""
    try:
        return task()
    except PenstockError as error:
        return error


def at_once(task: Task) -> Task:
    """Run it before anything else goes on."""
    task()
    return _nothing


def _nothing() -> None:
    return None


class Outstanding:
    """The newest task that was started and not waited for. Any thread may wait, at any time, while one thread starts tasks.

    Who comes while another one waits, waits for the same; what failed once fails for all who come later.
    """

    def __init__(self) -> None:
        self._waiting = Lock()
        self._task = _nothing

    def take(self, task: Task) -> None:
        """`task` waits for one that was started; the last one was waited for."""
        with self._waiting:
            self._task = task

    def wait(self) -> None:
        """Until it has ended. Raises what it raised."""
        with self._waiting:
            self._task()
            self._task = _nothing
