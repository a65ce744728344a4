"""The thread that publishes a batch while Spark computes the next one."""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from penstock.commit.executor import Task


class Publisher:
    """A coordinator's `DeferredPublish` that runs one task at a time in a thread of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-behind")
        self._task: Future[None] | None = None

    def __call__(self, task: Task) -> Task:
        """Start `task`. Return a function that waits for its end and raises what it raised."""
        self._task = self._threads.submit(task)
        return self._task.result

    def failure(self) -> BaseException | None:
        """Return what the newest task raised, None if it has not ended or did not fail. Does not wait."""
        task = self._task
        return task.exception() if task is not None and task.done() else None

    def is_done_within(self, seconds: float | None) -> bool:
        """Return whether no task runs any more after at most `seconds` (None: no limit)."""
        return self._task is None or not wait([self._task], seconds).not_done

    def close(self) -> None:
        """Wait for the end of a running task, whatever its outcome."""
        self._threads.shutdown()
