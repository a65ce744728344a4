"""Parts of the publication of a decided batch that any process can do, and what a sink has that lets Spark's tasks do them."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

Answer: TypeAlias = Sequence[int]
"""Numbers that a task found or counted, as its sink agrees with it."""


class PublishTask(Protocol):
    """A part of the publication of a decided batch that any process can do. Picklable."""

    def run(self) -> Answer:
        """Do it, and return what the sink asks for. Raises as `Sink.publish`.

        May be called again, by several processes at once, and by one whose driver is gone: what it writes is visible once.
        """
        ...


RunTasks = Callable[[Sequence[PublishTask]], Sequence[Answer]]
"""Has tasks of Spark run all of them, and returns what each one's `run` did. Raises what a task raised."""


@runtime_checkable
class PublishesInTasks(Protocol):
    """A sink that can have a batch published by tasks."""

    @property
    def tasks_per_batch(self) -> int:
        """How many tasks at most publish a batch side by side; 0 where the settings of this sink allow none."""
        ...

    def publish_by(self, run_tasks: RunTasks | None) -> None:
        """Have `publish` run tasks from now on, and note the batch when they have ended; None: in this process."""
        ...
