"""The thread that publishes a batch while Spark computes the next one."""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from penstock.commit.executor import Task


class Publisher:
    """`DeferredPublish` for a coordinator: one task at a time, in a thread of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-behind")
        self._task: Future[None] | None = None

    def __call__(self, task: Task) -> Task:
        """Start `task`; the answer waits for its end and raises what it raised."""
        self._task = self._threads.submit(task)
        return self._task.result

    def failure(self) -> BaseException | None:
        """What the newest task raised, should it have ended; does not wait."""
        task = self._task
        return task.exception() if task is not None and task.done() else None

    def is_done_within(self, seconds: float | None) -> bool:
        """Whether nothing goes on any more after at most so many seconds (None: after however many)."""
        return self._task is None or not wait([self._task], seconds).not_done

    def close(self) -> None:
        """Wait for the end of what goes on; whatever comes of it."""
        self._threads.shutdown()
