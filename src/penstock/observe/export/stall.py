"""Whether a run that has something to do does nothing for too long."""

import time
from collections.abc import Callable


class StallWatch:
    """Says once that a run was busy for `after_s` seconds without a batch, by `clock`; again only after another batch."""

    def __init__(self, after_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._after_s, self._clock = after_s, clock
        self._since_s, self._is_reported = clock(), False

    def moved(self) -> None:
        """A batch has ended."""
        self._since_s, self._is_reported = self._clock(), False

    def idle(self) -> None:
        """The run has nothing to do at present."""
        self._since_s = self._clock()

    def stalled_s(self) -> float | None:
        """Return for how long the run has been busy, if that is too long and was not returned before."""
        spent_s = self._clock() - self._since_s
        if self._is_reported or spent_s < self._after_s:
            return None
        self._is_reported = True
        return spent_s
