"""Handles SIGTERM and Ctrl-C while a pipeline runs: the first requests a clean stop, the second ends the process at once."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from typing_extensions import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h\n"


class StopSignals:
    """Handles both signals while entered, in the main thread only. Calls `on_stop` at the first signal."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self.wanted = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self.wanted:
            # Like a kill, without waiting for Spark: the next start recovers. The JVM ends when its input closes.
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), _SHOW_CURSOR)
            os._exit(128 + number)
        self.wanted = True
        self._on_stop()
