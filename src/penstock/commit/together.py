"""How publications run: side by side or in turn, and before a batch is done or beside the next one."""

from collections.abc import Callable, Sequence

from penstock.errors import PenstockError
from penstock.model import Published

Task = Callable[[], None]
Together = Callable[[Sequence[Callable[[], Published]]], Sequence["Published | PenstockError"]]
Behind = Callable[[Task], Task]
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
