"""Ctrl-C while a query is awaited: noted, in place of PySpark's handler, which cancels the jobs of the running batch."""

import signal
import threading
from types import FrameType
from typing import Any

from typing_extensions import Self


class Interrupt:
    """Notes the first SIGINT while entered, in the main thread; the second one raises KeyboardInterrupt.

    PySpark's own handler cancels all jobs: the batch fails, and Spark logs some 200 lines about it. Raised within a call to the
    JVM, KeyboardInterrupt leaves its answer to the next call. A handler that the user has set stays.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is signal.default_int_handler or getattr(before, "__module__", "").startswith("pyspark."):
                self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
