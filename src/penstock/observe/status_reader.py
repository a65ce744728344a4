"""The status of one pipeline, read again and again: by `watch`, and for everyone who asks the metrics endpoint."""

import time
from collections.abc import Callable
from threading import Lock

from penstock.observe.status import Status

ReadStatus = Callable[[Status | None], Status]
"""Reads a status now. Given an earlier one, it takes over its places and waiting files instead of looking at them."""

PLACES_EVERY_S = 30.0


class StatusReader:
    """Reads one pipeline's status. Its places and input files are looked at less often than its ledger: that costs more.

    Any thread may ask. One at a time reads; who asks meanwhile waits, and reads after it.
    """

    def __init__(
        self,
        read: ReadStatus,
        *,
        pipeline: str,
        places_every_s: float = PLACES_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pipeline = pipeline
        self._read, self._places_every_s, self._clock = read, places_every_s, clock
        self._known: Status | None = None
        self._looked_s = clock()
        self._reading = Lock()

    def status(self) -> Status:
        """Return the status as of now; its places are up to `places_every_s` older. Raises what reading raises."""
        with self._reading:
            now_s = self._clock()
            if now_s - self._looked_s > self._places_every_s:
                self._known = None
            if self._known is None:
                self._looked_s = now_s
            self._known = self._read(self._known)
            return self._known
