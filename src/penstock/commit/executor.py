"""How publications run: side by side or in turn, and before Spark goes on or beside the next batch."""

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from penstock.core.model import Published
from penstock.errors import PenstockError
from penstock.protocols import Sink

Task = Callable[[], None]
Executor = Callable[[Callable[[Sink], Published | PenstockError], Sequence[Sink]], Iterable[Published | PenstockError]]
"""Publishes every sink and returns the outcomes in their order: `map` in turn, `map_concurrently` side by side."""
DeferredPublish = Callable[[Task], Task]
"""Starts a task and returns a function that waits for its end and raises what it raised, on every call. One task at a time."""


class Outstanding:
    """The newest task that was started. One thread starts tasks; any thread may wait, at any time.

    Concurrent callers share one wait and all receive its exception, as does every later caller.
    """

    def __init__(self) -> None:
        self._waiting = Lock()
        self._task: Task | None = None

    def take(self, task: Task) -> None:
        """Called with what waits for the task that was just started, after the previous task was waited for."""
        with self._waiting:
            self._task = task

    def wait(self) -> None:
        """Wait until the task has ended. Raises what it raised."""
        with self._waiting:
            if self._task is not None:
                self._task()
                self._task = None
