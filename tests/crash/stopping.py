"""A driver that is stopped in the middle of a step, for as long as one likes, and then goes on as if nothing had happened."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.crash import shared_java
from tests.crash.commandline import Ended
from tests.crash.killing import DEADLINE_S, await_that, kill_session, session_of
from tests.crash.world import World

STALL_S = 2 * DEADLINE_S
"""How long the step itself waits at most, so that the signal comes in it however slow the machine is; it is told when to end."""


class StoppedDriver:
    """`penstock run` in a process of its own, to be stopped before the operation of `fault`, for example `rename.move@14`.

    `beside`: of two at the same time the second one, which has a Java process of its own.
    """

    def __init__(self, world: World, fault: str, *, whole: bool, beside: bool, once: Path) -> None:
        point, _, occurrence = fault.partition("@")
        once.mkdir()
        faults = f"{point}=stall:{STALL_S}@{occurrence}"
        java = {} if beside else shared_java.environment()
        self._process = world.start("run", str(world.file), "--json", faults=faults, once=once, java=java)
        self._leaders = [self._process.pid, *([] if beside else [shared_java.leader()])]
        self._reached, self._whole, self._slept_at = once / f"{point}=stall", whole, 0.0

    def await_that(self, happened: Callable[[], bool], *, what: str) -> None:
        """Wait for something that this driver does."""
        await_that(happened, what=what, driver=self._process)

    def stop(self) -> None:
        """Stop it when it is there."""
        await_that(self._reached.exists, what=self._reached.name, driver=self._process)
        self._signal(signal.SIGSTOP)
        self._slept_at = time.monotonic()

    def wake(self, *, after_s: float = 0.0) -> None:
        """Let it go on, without the rest of its own sleep, and at least `after_s` after it was stopped."""
        await_that(lambda: time.monotonic() > self._slept_at + after_s, what="the end of its sleep", driver=self._process)
        self._reached.with_name(f"{self._reached.name}.over").touch()
        self._signal(signal.SIGCONT)

    def go_on(self, *, after_s: float = 0.0) -> Ended:
        """Let it go on, and wait for its end."""
        self.wake(after_s=after_s)
        out, err = self._process.communicate(timeout=DEADLINE_S)
        return Ended(self._process.returncode, out, err)

    def next_error_line(self) -> str:
        """What it says next on standard error."""
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def terminate(self) -> Ended:
        """Ask it to stop, and wait for its end."""
        self._process.send_signal(signal.SIGTERM)
        out, err = self._process.communicate(timeout=DEADLINE_S)
        return Ended(self._process.returncode, out, err)

    def end(self) -> None:
        """Kill what is left of it."""
        kill_session(self._process)
        if len(self._leaders) > 1:
            self._signal(signal.SIGCONT)
            shared_java.end_application()

    def _signal(self, number: signal.Signals) -> None:
        """To the driver, or to its JVM and Python workers too, as where a whole machine sleeps."""
        whole = (pid for leader in self._leaders for pid in session_of(leader))
        for pid in whole if self._whole else [self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@contextmanager
def started(world: World, fault: str, *, whole: bool = True, beside: bool = False) -> Iterator[StoppedDriver]:
    """A driver on its way to `fault`; killed at the end if it still runs."""
    driver = StoppedDriver(
        world, fault, whole=whole, beside=beside, once=world.root / f"once-{len(list(world.root.glob('once-*')))}"
    )
    try:
        yield driver
    finally:
        driver.end()


@contextmanager
def stopped(world: World, fault: str, *, whole: bool = True) -> Iterator[StoppedDriver]:
    """A driver that stands still at `fault`; killed at the end if it still runs."""
    with started(world, fault, whole=whole) as driver:
        driver.stop()
        yield driver
