"""A reader that looks all the time, in a thread of its own, while the pipeline is being killed."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType

from typing_extensions import Self


class Poller(ABC):
    """`violations` names what no reader may ever see; `passes` counts the looks."""

    pause_s = 0.01

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name=type(self).__name__)
        self.violations: list[str] = []
        self.passes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    @abstractmethod
    def look(self) -> None:
        """One look."""

    def _poll(self) -> None:
        while not self._stop.wait(self.pause_s):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - a reader that dies unseen would prove nothing
                self.violations.append(f"the reader failed: {error!r}")
                return
            self.passes += 1
