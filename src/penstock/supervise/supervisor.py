"""The supervisor: one process that looks after the drivers of many pipelines."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.observe.supervision import Supervision, note_supervision
from penstock.supervise.driver import DriverLog, Limits, Stop, run_driver
from penstock.supervise.lease import Lease
from penstock.supervise.restarts import DONE, DriverError, Ended, Restarts
from penstock.supervise.standby import RUNS, Standby

OWNER = f"{socket.gethostname()} process {os.getpid()}"
"""This supervisor, as notes and the lease name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """A pipeline to be looked after. `command` runs it, as `penstock run` does. With `lease` it begins when that is its turn."""

    pipeline: str
    home: str
    command: Sequence[str]
    lease: Lease | None = None

    @property
    def log(self) -> Path:
        """Where the drivers' messages are; several supervisors of a pipeline may have the same home."""
        return Path(self.home) / ("run.log" if self.lease is None else f"run-{socket.gethostname()}.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened to the driver of a pipeline, in words. `killed`: how it was killed; None where it ended by itself.

    `error`: what the driver said of its end, None if it said nothing.
    """

    pipeline: str
    state: str
    text: str
    killed: str | None = None
    error: DriverError | None = None


Report = Callable[[Event], None]


async def supervise(supervised: Sequence[Supervised], limits: Limits, *, most_failures: int, report: Report) -> int:
    """Run every pipeline until each is done or given up, or until SIGTERM or SIGINT. Return the exit code.

    That is the exit code of the first pipeline that was given up, 1 where a signal or a hang ended its driver; else 0. At a
    signal the drivers finish their batches, at a second one they are killed.
    """
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.want)
    carers = [
        _Carer(one, limits, stop, Restarts(most_failures=most_failures, standby=one.lease is not None), report)
        for one in supervised
    ]
    codes = await asyncio.gather(*(carer.look_after() for carer in carers))
    return next((code for code in codes if code != DONE), DONE)


class _Carer:
    """Looks after one pipeline."""

    def __init__(self, supervised: Supervised, limits: Limits, stop: Stop, restarts: Restarts, report: Report) -> None:
        self._supervised, self._limits, self._stop = supervised, limits, stop
        self._restarts, self._report = restarts, report
        self._standby = None if supervised.lease is None else Standby(supervised.lease, self._note)
        self._starts = 0
        self._ended: Ended | None = None

    async def look_after(self) -> int:
        """Start the driver again and again. Return the exit code with which it was given up, 0 if it was not."""
        while True:
            self._starts += 1
            ended = self._ended = await self._run_driver()
            if self._stop.wanted.is_set():
                self._note("stopped", ended.text)
                return DONE
            pause_s = self._restarts.pause_s(ended)
            if pause_s is None:
                return self._give_up(ended)
            self._note("waiting", f"{ended.text}; starts again in {pause_s:.0f} s", pause_s=pause_s)
            if await self._is_stopped_within(pause_s):
                self._note("stopped", "is not started again")
                return DONE

    async def _run_driver(self) -> Ended:
        """Run one driver to its end. When nothing of it runs any more the lease is given back: a standby begins at once."""
        log, command, standby = DriverLog(self._supervised.log), self._supervised.command, self._standby
        if standby is None:
            return await run_driver(command, log, self._limits, self._stop, lambda text: self._note(RUNS, text))
        try:
            say = lambda text: self._note(standby.state, text)  # noqa: E731
            return await run_driver(command, log, self._limits, self._stop, say, attend=standby.attend)
        finally:
            await standby.release()

    def _give_up(self, ended: Ended) -> int:
        if ended.exit_code == DONE:
            self._note("done", "has delivered what was there")
            return DONE
        times = f" {self._restarts.failures} times in a row" if self._restarts.failures > 1 else ""
        self._note("given up", f"{ended.text}{times} and is not started again; see {self._supervised.log}")
        return ended.exit_code if ended.exit_code is not None and ended.exit_code > 0 else 1

    async def _is_stopped_within(self, pause_s: float) -> bool:
        try:
            await asyncio.wait_for(self._stop.wanted.wait(), pause_s)
        except asyncio.TimeoutError:
            return False
        return True

    def _note(self, state: str, text: str, *, pause_s: float | None = None) -> None:
        now_ms = time.time_ns() // 1_000_000
        found = Supervision(
            owner=OWNER,
            at_ms=now_ms,
            state=state,
            restarts=self._starts - 1,
            ended=None if self._ended is None else self._ended.text,
            next_start_ms=None if pause_s is None else now_ms + round(1000 * pause_s),
            log=str(self._supervised.log),
        )
        note_supervision(self._supervised.home, found, is_active=self._standby is None or state == RUNS)
        ended = self._ended if state in {"waiting", "given up"} else None
        killed = ended.text if ended is not None and (ended.exit_code is None or ended.exit_code < 0) else None
        error = None if ended is None else ended.error
        self._report(Event(pipeline=self._supervised.pipeline, state=state, text=text, killed=killed, error=error))
