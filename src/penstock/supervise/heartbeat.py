"""A driver's sign of life to the process that supervises it: bytes in a pipe, and an end of it that tells who is gone."""

import asyncio
import os
from contextlib import suppress

_VARIABLE = "PENSTOCK_HEARTBEAT"
_BEAT, _WARM = b".", b"w"


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

    def beat(self) -> bool:
        """Give a sign of life. Return whether the supervisor is there; a driver whose supervisor was killed is to stop."""
        return self._give(_BEAT)

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
    """What the supervisor heard of a driver: whether it `is_warm`, so that it could begin."""

    def __init__(self) -> None:
        self.is_warm = asyncio.Event()

    def heard(self, signs: bytes) -> None:
        """Note what came through the pipe."""
        if _WARM in signs:
            self.is_warm.set()


def environment(handle: int) -> dict[str, str]:
    """Return the environment of a driver that inherits the writing end `handle` of a pipe."""
    return {**os.environ, _VARIABLE: str(handle)}
