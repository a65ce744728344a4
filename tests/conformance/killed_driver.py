"""Drivers in processes of their own that are killed at random moments."""

import random
import uuid
from collections.abc import Sequence
from pathlib import Path

from penstock.testing.conformance import SinkRig
from penstock.testing.conformance.story import end, live, start

OPEN_SHARE = 0.7
"""The others may be killed while they import, recover or open: on a busy machine that is most of their life."""


class Driver:
    """A process that delivers these batches."""

    def __init__(self, rig: SinkRig, numbers: Sequence[int]) -> None:
        self._opened = rig.directory / f"opened-{uuid.uuid4().hex}"
        self._process = start(_live, rig, numbers, self._opened)

    def kill(self, generator: random.Random, *, longest_s: float) -> int:
        """Kill it within so long, mostly after it has opened its generation, and return how it ended."""
        if generator.random() < OPEN_SHARE:
            while not self._opened.exists() and self._process.is_alive():
                self._process.join(0.01)
        self._process.join(generator.uniform(0, longest_s))
        self._process.kill()
        return end(self._process)


def _live(rig: SinkRig, numbers: Sequence[int], opened: Path) -> None:
    live(rig, numbers, once_open=opened.touch)


def decided_upto(rig: SinkRig) -> int:
    """The number of the newest batch that was decided."""
    ledger = rig.ledger()
    try:
        tail = ledger.tail()
        assert tail is not None
        assert tail.summary.next_batch_id is not None
        return tail.summary.next_batch_id - 1
    finally:
        ledger.close()
