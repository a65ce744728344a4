"""Two machines that supervise one pipeline with a standby, and what can happen to a machine.

A machine's drivers share a Java process, which goes on as a zombie where a driver alone is killed. A supervisor that was killed
is started again, as systemd does.
"""

import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JError

from tests.crash.killing import session_of
from tests.crash.shared_java import JavaProcess
from tests.crash.world import World
from tests.servers.link import KINDS as CUTS
from tests.servers.link import Link

LEASE_S = 2.0
PATIENCE_S = 600.0
PATIENT = ("-c", "from penstock.supervise import restarts; restarts._LONGEST_PAUSE_S = 1.0; import penstock.__main__")
"""A `World.program` that pauses for a second at most before it starts another driver, however often drivers failed."""


class Machine:
    """A supervisor with its newest driver, and their Java process. `link`: the way to the ledger, if that is on a server."""

    def __init__(self, name: str, world: World, file: Path, link: Link | None = None) -> None:
        self.name, self.link = name, link
        self._world, self._file = replace(world, program=PATIENT), file
        self._changed = threading.Condition()
        self.texts: list[str] = []
        self.errors: list[str] = []
        self.driver, self.state = 0, ""
        self.is_warm = False
        self._java: JavaProcess | None = None
        self._supervisor: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start its supervisor, as at a boot or after a kill."""
        self._java = self._java or JavaProcess()
        with suppress(Py4JError):  # a driver that is about to end uses it, too
            self._java.end_application()
        words = ("supervise", str(self._file), "--standby", f"--lease={LEASE_S}", "--failures=100000", "--json")
        self._supervisor = self._world.start(*words, java=self._java.environment())
        self.driver, self.state, self.is_warm = 0, "starting", False
        for read in (self._read_events, self._read_errors):
            threading.Thread(target=read, args=(self._supervisor,), daemon=True).start()

    def _read_events(self, supervisor: "subprocess.Popen[str]") -> None:
        assert supervisor.stdout is not None
        with supervisor.stdout as lines:
            for line in lines:
                event = json.loads(line)
                self._end_application(event["text"])
                with self._changed:
                    self._note(event["state"], event["text"])
                    self._changed.notify_all()

    def _end_application(self, text: str) -> None:
        """Once a driver has ended, before the next one begins in the same Java process."""
        if "starts again in" in text and self._java is not None:
            with suppress(Py4JError, OSError):  # it was killed, too
                self._java.end_application()

    def _note(self, state: str, text: str) -> None:
        self.texts.append(text)
        self.state = state
        if text.startswith("started as process"):
            self.driver, self.is_warm = int(text.rsplit(maxsplit=1)[-1]), False
        self.is_warm = self.is_warm or "has the lease" in text

    def _read_errors(self, supervisor: "subprocess.Popen[str]") -> None:
        assert supervisor.stderr is not None
        with supervisor.stderr as lines:
            self.errors += lines

    @property
    def is_active(self) -> bool:
        return self.is_warm and self.state == "running"

    @property
    def is_standing_by(self) -> bool:
        return self.is_warm and self.state == "standby"

    def await_that(self, happened: Callable[[], bool], *, what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(happened, PATIENCE_S), f"{what} was not seen of {self.name}: {self.texts[-9:]}"

    def kill(self, what: str) -> None:
        """SIGKILL of its `driver`, its `supervisor` or the whole `machine`; the latter two begin anew."""
        self._signal(what, signal.SIGKILL)
        if what == "driver":
            return
        assert self._supervisor is not None
        self._supervisor.wait(PATIENCE_S)
        if what == "machine":
            self._end_java()
        self.start()

    def sleep(self, what: str, seconds: float) -> None:
        """SIGSTOP of one of them, and SIGCONT."""
        stopped = self._signal(what, signal.SIGSTOP)
        threading.Event().wait(seconds)
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def cut(self, kind: str, seconds: float) -> None:
        assert self.link is not None
        self.link.cut(kind)
        threading.Event().wait(seconds)
        self.link.heal()

    def _signal(self, what: str, number: signal.Signals) -> Sequence[int]:
        """Return to whom it was sent."""
        assert self._supervisor is not None
        assert self._java is not None
        pids = {
            "driver": [self.driver],
            "supervisor": [self._supervisor.pid],
            "machine": [self._supervisor.pid, *session_of(self.driver), *session_of(self._java.leader)],
        }[what]
        sent = []
        for pid in filter(None, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                sent.append(pid)
        return sent

    def _end_java(self) -> None:
        assert self._java is not None
        for pid in session_of(self._java.leader):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._java.gateway.close()
        self._java.gateway.proc.stdin.close()
        self._java.gateway.proc.wait(PATIENCE_S)
        self._java = None

    def end(self) -> int:
        """Stop it cleanly. Return its supervisor's exit code."""
        assert self._supervisor is not None
        self._supervisor.send_signal(signal.SIGTERM)
        code = self._supervisor.wait(PATIENCE_S)
        self._end_java()
        return code

    def destroy(self) -> None:
        """Leave nothing of it, whatever state it is in."""
        if self._supervisor is not None and self._supervisor.poll() is None:
            self._signal("machine", signal.SIGKILL)
            self._supervisor.wait(PATIENCE_S)
        if self._java is not None:
            self._end_java()


@contextmanager
def both(first: Machine, second: Machine) -> Iterator[tuple[Machine, Machine]]:
    """Start them one after the other, and leave nothing of them."""
    try:
        for machine in (first, second):
            machine.start()
        yield first, second
    finally:
        first.destroy()
        second.destroy()


def strike(machines: Sequence[Machine], generator: random.Random, kind: str) -> str:
    """One fault of `kind` ("kill", "stop" or "cut") of the active machine or of the other one. Return which."""
    is_at_active = generator.random() < 2 / 3
    victim = next((each for each in machines if each.is_active == is_at_active), machines[0])
    role = "active" if victim.is_active else "standby" if victim.is_standing_by else "starting"
    what = generator.choice(["driver", "supervisor", "machine"])
    seconds = 30.0 if generator.random() < 0.2 else generator.uniform(0.2, 4 * LEASE_S)
    if kind == "kill":
        victim.kill(what)
    elif kind == "stop":
        victim.sleep(what, seconds)
    else:
        what = generator.choice(CUTS)
        victim.cut(what, seconds)
    return f"{kind} {what} of the {role}"
