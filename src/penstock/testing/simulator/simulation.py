"""The scheduler of the simulator: starts drivers, switches between them, injects faults, and checks the end of their world."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from random import Random

from greenlet import getcurrent

from penstock.core.codec import decode_entry
from penstock.core.model import Attempt, Entry, Totals
from penstock.ledger.store import MemoryStore
from penstock.testing.simulator.checkpoint import Checkpoints
from penstock.testing.simulator.driver import Driver
from penstock.testing.simulator.schedule import Fault, Kind, Schedule, Shape, ViolationError
from penstock.testing.simulator.targets import History, Target, Targets, totals_of

LONGEST_RUN = 5_000
MOST_DRIVERS = 250


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. `steps` are those at which a fault could be injected; `struck` counts the faults that were."""

    steps: int
    drivers: int
    struck: int


class Simulation:
    """One run of one schedule. Greenlets switch only here."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.random = Random(schedule.seed)  # noqa: S311 - repeatable, not secret
        self.world = World(schedule.shape, self.random)
        self.hub = getcurrent()
        self.steps = 0
        self.trace: list[tuple[int, str, str]] = []
        self._faults = {fault.step: fault for fault in schedule.faults}
        self._switch, self._maintenance = schedule.shape.switch, schedule.shape.maintenance
        self._struck = 0
        self._down_until = 0
        self._drivers = 0
        self._live: list[Driver] = []
        self._asleep: list[tuple[float, Driver]] = []
        self._next: Driver | None = None

    def run(self) -> Outcome:
        """Run to the end and check everything. Raises ViolationError."""
        while self._go_on():
            driver = self._next or self._live[0]
            self._next = None
            driver.greenlet.switch()
            if driver.greenlet.dead:
                self._live.remove(driver)
        worked = self.steps
        self._faults.clear()
        self._down_until = 0
        self._finish()
        self.world.check()
        return Outcome(worked, self._drivers, self._struck)

    def digest(self) -> str:
        """Return a short hash of the trace, equal for equal runs."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()[:16]

    # --- for drivers

    def step(self, driver: Driver, operation: str, subject: str) -> Kind | None:
        """Let other drivers run first, perhaps, and return the fault of the operation that `driver` is about to do."""
        self.steps += 1
        at = self.steps
        if self._asleep:
            self._wake_due(driver)
        if len(self._live) > 1 and self.random.random() < self._switch:
            self._yield_to(self.random.choice(self._live), driver)
        fault = self._faults.pop(at, None) if self._faults else None
        self.trace.append((driver.number, operation, subject))
        if at > LONGEST_RUN:
            raise ViolationError(f"I11: no end after {at} steps")
        if self._maintenance and self.random.random() < self._maintenance:
            self.world.maintain()
        if fault is not None:
            return self._strike(fault, driver)
        return Kind.ERROR if at <= self._down_until else None

    def _strike(self, fault: Fault, driver: Driver) -> Kind | None:
        self._struck += 1
        self.trace.append((driver.number, "fault", str(fault)))
        if fault.kind is Kind.STALL:
            self._live.remove(driver)
            self._asleep.append((float("inf") if fault.steps is None else self.steps + fault.steps, driver))
            self.hub.switch()
            return None
        if fault.kind is Kind.RIVAL:
            self._yield_to(self._start(), driver)
            return None
        if fault.kind is Kind.OUTAGE:
            self._down_until = self.steps + (fault.steps or 0)
            return Kind.LOST
        return fault.kind

    def _yield_to(self, other: Driver, driver: Driver) -> None:
        if other is not driver:
            self._next = other
            self.hub.switch()

    # --- drivers come and go

    def _go_on(self) -> bool:
        """Return whether a driver can run; start or wake one if none is live and it is needed."""
        if self._live:
            return True
        if not self.world.checkpoints.is_done:
            self._start()
        elif self._asleep:
            self.world.maintain(everything=True)
            self._live += [driver for _, driver in self._asleep]
            self._asleep.clear()
        return bool(self._live)

    def _start(self) -> Driver:
        self._drivers += 1
        if self._drivers > MOST_DRIVERS:
            raise ViolationError(f"I11: no end after {MOST_DRIVERS} drivers")
        if not self._live:
            self.world.checkpoints.before_start()
        driver = Driver(self._drivers, self, recover_only=False)
        self._live.append(driver)
        return driver

    def _wake_due(self, driver: Driver) -> None:
        due = [sleeper for at, sleeper in self._asleep if at <= self.steps]
        if due:
            self._asleep = [(at, sleeper) for at, sleeper in self._asleep if at > self.steps]
            self._live += due
            self._yield_to(due[0], driver)

    def _finish(self) -> None:
        self._drivers += 1
        last = Driver(self._drivers, self, recover_only=True)
        self._live = [last]
        last.greenlet.switch()
        if last.ended is not None:
            raise ViolationError(f"I11: nothing is wrong any more, but the last recovery ended with {last.ended!r}")


def run(schedule: Schedule) -> Outcome:
    """Run `schedule`. Raises ViolationError with the command that replays it."""
    try:
        return Simulation(schedule).run()
    except ViolationError as violation:
        raise ViolationError(f"{violation}\nReplay: {schedule.command}") from violation


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
