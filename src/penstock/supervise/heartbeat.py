"""A driver's sign of life to the process that supervises it: bytes in a pipe, and an end of it that tells who is gone."""

import os
from contextlib import suppress

_VARIABLE = "PENSTOCK_HEARTBEAT"
_BEAT = b"."


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
        if self._handle is None:
            return True
        try:
            os.write(self._handle, _BEAT)
        except BlockingIOError:  # the supervisor does not read at present
            return True
        except OSError:
            return False
        return True


def environment(handle: int) -> dict[str, str]:
    """Return the environment of a driver that inherits the writing end `handle` of a pipe."""
    return {**os.environ, _VARIABLE: str(handle)}
