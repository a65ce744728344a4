"""A bounded queue in front of a receiver: who puts something in never waits, and what does not fit is dropped and counted."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from penstock.support.secret import scrub

T = TypeVar("T")

_log = logging.getLogger(__name__)

CAPACITY = 1_000
_AT_ONCE = 100
_LONGEST_LAST_PAUSE_S = 0.5
"""The longest pause between two tries once the run has ended."""


class Patience:
    """How long a sender may go on: without limit while the run lasts, then until the limit of `ExportQueue.close`."""

    def __init__(self) -> None:
        self._ending, self._over = threading.Event(), threading.Event()

    def end_run(self) -> None:
        """The run has ended: pauses become short."""
        self._ending.set()

    def end(self) -> None:
        """Nobody waits any more."""
        self._ending.set()
        self._over.set()

    @property
    def is_over(self) -> bool:
        """Whether nobody waits any more for what is sent."""
        return self._over.is_set()

    def pause(self, seconds: float) -> None:
        """Wait between two tries, at most `seconds`; shorter once the run has ended."""
        if not self._ending.wait(seconds):
            return
        self._over.wait(min(seconds, _LONGEST_LAST_PAUSE_S))


class ExportQueue(Generic[T]):
    """Hands values to `send` in a daemon thread, several at once, in their order. Nothing raises, nothing but `close` waits.

    `send` may take as long as it likes, and counts as failed if it raises. It has to give up when its Patience is over. A process
    that was forked sends nothing. `name`: the receiver, in warnings.
    """

    def __init__(self, name: str, send: Callable[[Sequence[T], Patience], None], *, capacity: int = CAPACITY) -> None:
        self._name, self._send, self._capacity = name, send, capacity
        self._waiting = deque[T]()
        self._changed = threading.Condition()
        self._patience = Patience()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._in_work = 0
        self._is_closed = False
        self._dropped, self._failed = 0, 0

    @property
    def lost(self) -> int:
        """How many values were dropped, or were not taken by the receiver."""
        return self._dropped + self._failed

    def put(self, value: T) -> None:
        """Have `value` sent, unless the queue is full or closed: then it is dropped and counted."""
        if os.getpid() != self._process:
            return
        with self._changed:
            if self._is_closed or len(self._waiting) >= self._capacity:
                self._dropped += 1
                return
            self._waiting.append(value)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"penstock-export-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def end_run(self) -> None:
        """Let pauses between tries become short: `close` follows."""
        self._patience.end_run()

    def close(self, *, until_s: float) -> None:
        """Wait until everything is sent, at most until the monotonic time `until_s`; what is left then is dropped and counted."""
        if os.getpid() != self._process:
            return
        self.end_run()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(self._is_idle, max(0.0, until_s - time.monotonic()))
            self._dropped += len(self._waiting) + self._in_work
            self._in_work = 0
            self._waiting.clear()
        self._patience.end()
        if self.lost:
            _log.warning("%s: %d of what was to be sent was dropped or not taken.", self._name, self.lost)

    def _is_idle(self) -> bool:
        return not self._waiting and not self._in_work

    def _work(self) -> None:
        while values := self._next():
            failed = 0
            try:
                self._send(values, self._patience)
            except Exception as error:  # noqa: BLE001 - a receiver's client may raise anything, and nothing relies on it
                failed = len(values)
                self._report(error)
            with self._changed:
                self._failed += failed if self._in_work else 0  # `close` has counted those that it did not wait for
                self._in_work = 0
                self._changed.notify_all()

    def _next(self) -> Sequence[T]:
        """Wait for values and return them; none once the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            values = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            self._in_work = len(values)
            return values

    def _report(self, error: Exception) -> None:
        level = logging.WARNING if not self._failed else logging.DEBUG
        _log.log(level, "%s does not take what is sent: %s", self._name, scrub(str(error)) or type(error).__name__)
