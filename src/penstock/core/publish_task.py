"""Shares of a decided batch that any process can publish, and what a sink has that lets Spark's tasks do it."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable


class PublishTask(Protocol):
    """A share of a decided batch that any process can publish. Picklable."""

    def publish(self) -> bool:
        """Publish the share unless its marker shows it, and return whether it did already.

        May be called by several processes at once, and by one whose driver is gone: the share is visible once. Raises as
        `Sink.publish`.
        """
        ...


RunTasks = Callable[[Sequence[PublishTask]], Sequence[bool]]
"""Has tasks of Spark publish all shares, and returns what `publish` of each answered. Raises what a task raised."""


@runtime_checkable
class PublishesInTasks(Protocol):
    """A sink that can have a batch published by tasks, each of a share that has a marker of its own."""

    @property
    def tasks_per_batch(self) -> int:
        """How many tasks can publish a batch side by side; 0 where the settings of this sink allow none."""
        ...

    def publish_by(self, run_tasks: RunTasks | None) -> None:
        """Have `publish` run tasks from now on, and look at their markers when they have ended; None: in this process."""
        ...
