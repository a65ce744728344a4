"""A driver's sign of life to the process that supervises it: bytes in a pipe, and an end of it that tells who is gone."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress

_VARIABLE = "PENSTOCK_HEARTBEAT"
_BEAT, _WARM, _BATCHES = b".", b"w", (b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9")
"""Batches near each other give different signs, so that a long one is told from many short ones between two signs."""


class Heartbeat:
    """The driver's end of the pipe; without a supervisor it does nothing."""

    def __init__(self, handle: int | None) -> None:
        self._handle = handle

    @classmethod
    def of_environment(cls) -> "Heartbeat":
        """Return the heartbeat of this process, and hide it from the processes that this one starts."""
        named = os.environ.pop(_VARIABLE, "")
        if not named.isdecimal():
            return cls(None)
        with suppress(OSError):
            os.set_inheritable(int(named), False)  # noqa: FBT003
            os.set_blocking(int(named), False)
            return cls(int(named))
        return cls(None)

    def beat(self, *, batch_id: int | None = None) -> bool:
        """Give a sign of life, while `batch_id` is delivered or none.

        Return whether the supervisor is there; a driver whose supervisor was killed is to stop.
        """
        return self._give(_BEAT if batch_id is None else _BATCHES[batch_id % len(_BATCHES)])

    def warm(self) -> bool:
        """As `beat`, and say that the driver could begin."""
        return self._give(_WARM)

    def _give(self, sign: bytes) -> bool:
        if self._handle is None:
            return True
        try:
            os.write(self._handle, sign)
        except BlockingIOError:  # the supervisor does not read at present
            return True
        except OSError:
            return False
        return True


class Signs:
    """What the supervisor heard of a driver: whether it `is_warm`, so that it could begin, and how long its batch takes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._newest, self._since_s = clock, _BEAT, clock()
        self.is_warm = asyncio.Event()

    def heard(self, signs: bytes) -> None:
        """Note what came through the pipe."""
        if _WARM in signs:
            self.is_warm.set()
        if signs.strip(self._newest):
            self._newest, self._since_s = signs[-1:], self._clock()

    def batch_s(self) -> float:
        """Return for how many seconds the current batch has been delivered, 0 between two batches."""
        return self._clock() - self._since_s if self._newest in _BATCHES else 0.0


def environment(handle: int) -> dict[str, str]:
    """Return the environment of a driver that inherits the writing end `handle` of a pipe."""
    return {**os.environ, _VARIABLE: str(handle)}
