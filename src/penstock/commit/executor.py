"""How publications run, side by side or in turn, before Spark goes on or beside the next batch, and what became of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock

from penstock.core.model import BatchId, Published, SinkName
from penstock.errors import PenstockError
from penstock.protocols import Sink
from penstock.support.combined_error import join, urgency

Task = Callable[[], None]
Executor = Callable[[Callable[[Sink], Published | PenstockError], Sequence[Sink]], Iterable[Published | PenstockError]]
"""Publishes every sink and returns the outcomes in their order: `map` in turn, `map_concurrently` side by side."""
DeferredPublish = Callable[[Task], Task]
"""Starts a task and returns a function that waits for its end and raises what it raised, on every call. One task at a time."""


def all_published(
    batch_id: BatchId, sinks: Sequence[Sink], outcomes: Sequence[Published | PenstockError]
) -> dict[SinkName, Published]:
    """Return the outcome of every sink. Raises one error for all sinks that failed; its `by_sink` holds the error of each."""
    published: dict[SinkName, Published] = {}
    failures: dict[SinkName, PenstockError] = {}
    for sink, outcome in zip(sinks, outcomes, strict=True):
        if isinstance(outcome, PenstockError):
            failures[sink.name] = outcome
        else:
            published[sink.name] = outcome
    if failures:
        raise _unpublished(batch_id, failures)
    return published


def _unpublished(batch_id: BatchId, failures: Mapping[SinkName, PenstockError]) -> PenstockError:
    ranked = dict(sorted(failures.items(), key=lambda failure: urgency(failure[1])))
    first, *others = ranked.values()
    if others:
        each = (f"Sink {sink!r}: {type(error).__name__}: {error.message}" for sink, error in ranked.items())
        message = f"Batch {batch_id} is decided, and {len(ranked)} sinks did not publish it. {' '.join(each)}"
        first = join([first, *others], message=message)
    first.by_sink = {str(sink): error.as_fields() for sink, error in ranked.items()}
    return first


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
