"""A driver's turn: a warm driver of a standby begins when its supervisor says so, by a byte in a pipe."""

import os
import select
from contextlib import suppress

_VARIABLE = "PENSTOCK_TURN"
_BEGIN = b"b"


class Turn:
    """The driver's end of the pipe."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def of_environment(cls) -> "Turn | None":
        """Return the turn for which this process has to wait, None if it begins at once; hide it from what this one starts."""
        named = os.environ.pop(_VARIABLE, "")
        if not named.isdecimal():
            return None
        with suppress(OSError):
            os.set_inheritable(int(named), False)  # noqa: FBT003
        return cls(int(named))

    def has_come_within(self, seconds: float) -> bool:
        """Wait for at most `seconds`. Return whether the driver is to begin; never, once the supervisor is gone."""
        ready, _, _ = select.select([self._handle], [], [], seconds)
        return bool(ready) and os.read(self._handle, len(_BEGIN)) == _BEGIN


def environment(handle: int) -> dict[str, str]:
    """Return what a driver that inherits the reading end `handle` of the pipe finds in its environment."""
    return {_VARIABLE: str(handle)}


def begin(handle: int) -> None:
    """Tell the driver at the other end of `handle` to begin, unless it is gone."""
    with suppress(OSError):
        os.write(handle, _BEGIN)
