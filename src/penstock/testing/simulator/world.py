"""The state that outlives a driver, and the checks of it at the end of a run."""

from collections import Counter
from random import Random

from penstock.core.codec import decode_entry
from penstock.core.model import Attempt, Entry, Totals
from penstock.ledger.memory import MemoryStore
from penstock.testing.simulator.checkpoint import Checkpoints
from penstock.testing.simulator.history import History
from penstock.testing.simulator.schedule import Shape
from penstock.testing.simulator.stepping import ViolationError
from penstock.testing.simulator.targets import Target, Targets, totals_of


class World:
    """Stores, targets, source and checkpoint."""

    def __init__(self, shape: Shape, random: Random) -> None:
        self.shape, self._random = shape, random
        self.store = MemoryStore()
        self.targets = Targets()
        self.history = History(self.targets)
        self.checkpoints = Checkpoints(shape, random, self.history)
        self._clock_ms = 0

    def now_ms(self) -> int:
        """Return the time of a clock that is for people only."""
        self._clock_ms += 1
        return self._clock_ms

    def maintain(self, *, everything: bool = False) -> None:
        """Remove something published, as maintenance does; with `everything` all of it."""
        for target in self.targets.all:
            target.maintain(None if everything else self._random)

    # --- the end

    def check(self) -> None:
        """Check the state after all drivers ended and a last one recovered and swept without faults. Raises ViolationError."""
        tail = self._tail()
        for target in self.targets.all:
            self._check_content(target)
            self._check_staging(target)
            self._check_totals(target, tail)

    def _tail(self) -> Entry:
        newest = list(self.store.keys("entries/"))[-1]
        data = self.store.get(newest)
        if int(newest[-12:]) != self.history.length or data is None:
            raise ViolationError(f"I7: {newest} is the last entry, but {self.history.length} were appended")
        return decode_entry(data)

    def _check_content(self, target: Target) -> None:
        found, expected = target.content(), target.expected()
        if found != expected:
            raise ViolationError(f"I1/I2: {target.sink} lacks {expected - found} and has too much {found - expected}")
        numbers = Counter(row.number for name in target.decided for row in target.wrote[name])
        if numbers != Counter(range(self.shape.rows)):
            raise ViolationError(f"I1/I2: {target.sink} was to hold the source's rows, but {numbers} were decided")

    def _check_staging(self, target: Target) -> None:
        kept = self.history.newest.attempts if self.history.newest else frozenset()
        for name in target.staged:
            attempt = Attempt.find(name)
            if attempt is None or attempt.token not in kept:
                raise ViolationError(f"I10: {name} is left behind in {target.sink}")

    def _check_totals(self, target: Target, tail: Entry) -> None:
        decided = sum((totals_of(target.wrote[name]) for name in target.decided), Totals())
        totals = tail.summary.totals.get(target.sink, {})
        if sum(totals.values(), Totals()) != decided:
            raise ViolationError(f"I4: the ledger's totals of {target.sink} are {totals}, expected {decided}")
