"""How many events a second a listener takes."""

from collections.abc import Callable

_BURST_S = 1.0


class RateLimit:
    """So many events a second; those of up to a second may come at once. A request counts whole, also if that is too much.

    The generic cell rate algorithm of ITU-T I.371, by one sum. `now_s` is a clock that never goes back.
    """

    def __init__(self, events_per_s: float, *, now_s: Callable[[], float]) -> None:
        self._events_per_s, self._now_s = events_per_s, now_s
        self._paid_until_s = now_s()

    def delay_s(self) -> float:
        """Return how long no event may be taken: 0 if one may be now."""
        return max(self._paid_until_s - self._now_s() - _BURST_S, 0.0)

    def count(self, events: int) -> None:
        """Note that so many were taken."""
        self._paid_until_s = max(self._paid_until_s, self._now_s()) + events / self._events_per_s
