"""Finding and killing the processes of a run: the driver, or one of the Python workers that its tasks run in."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.crash.awaited import ended
from tests.crash.world import World

DEADLINE_S = 120


def session_of(leader: int) -> Sequence[int]:
    """Every living process of the session that `leader` leads: driver, JVM and Python workers."""
    entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in entries if _session(entry) == leader]


def _session(entry: Path) -> int | None:
    try:
        fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(fields[3]) if fields[0] != "Z" else None


def workers_of(leader: int) -> Sequence[int]:
    """The Python workers (and their daemon) below a driver."""
    return [pid for pid in session_of(leader) if b"pyspark" in _command(pid) and b"daemon" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def kill_at_random(process: "subprocess.Popen[str]", generator: random.Random) -> str | None:
    """SIGKILL the driver or a Python worker at some moment; None if the run ended before.

    A third of the kills may hit anything from the first instruction on, a third comes after the first batch was told, when the
    protocol's steps follow each other closely, and a third hits a Python worker of Spark.
    """
    aim = generator.choice(["start", "batches", "worker"])
    if aim == "batches":
        assert process.stdout is not None
        process.stdout.readline()
    victims = _await_workers(process) if aim == "worker" else []
    let_pass(process, generator.uniform(0, {"start": 9.0, "batches": 2.0, "worker": 0.5}[aim]))
    if process.poll() is not None:
        return None
    alive = [pid for pid in victims if pid in workers_of(process.pid)]
    victim = generator.choice(alive) if alive else process.pid
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return "driver" if victim == process.pid else "worker"


def _await_workers(process: "subprocess.Popen[str]") -> Sequence[int]:
    while process.poll() is None:
        found = workers_of(process.pid)
        if found:
            return found
        time.sleep(0.02)
    return []


def let_pass(process: "subprocess.Popen[str]", seconds: float) -> None:
    """Wait, unless the process ends before."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)


def await_session_end(leader: int) -> None:
    """Wait until JVM and workers of a killed driver are gone too; they go on as zombies for a while. Ends those that stay."""
    deadline = time.monotonic() + DEADLINE_S
    while (left := session_of(leader)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"processes {left} of a killed run did not end by themselves within {DEADLINE_S} s"


def await_gone(pid: int) -> None:
    """Wait until the process ended and its parent knows."""
    status, deadline = Path(f"/proc/{pid}/stat"), time.monotonic() + DEADLINE_S
    while status.exists():
        assert time.monotonic() < deadline, status.read_text()
        time.sleep(0.01)


def await_that(happened: Callable[[], bool], *, what: str, driver: "subprocess.Popen[str]") -> None:
    """Look again and again until it `happened`; what a driver does is seen in its files only. It must not end before."""
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        if driver.poll() is not None or time.monotonic() > deadline:
            kill_session(driver)
            raise AssertionError(f"{what} was not seen before the driver ended with {driver.returncode}")
        time.sleep(0.01)


def kill_session(driver: "subprocess.Popen[str]") -> None:
    """SIGKILL everything of a run at once, as when its machine loses power."""
    for pid in session_of(driver.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.communicate()


def executors() -> Sequence[int]:
    """The Spark executors on this machine."""
    entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in entries if b"CoarseGrainedExecutorBackend" in _command(int(entry.name))]


def python_daemons() -> Sequence[int]:
    """The processes on this machine that fork Python workers of Spark, and these workers."""
    entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in entries if b"pyspark_daemon" in _command(int(entry.name))]


def parents_of(pid: int) -> Sequence[int]:
    """The processes that `pid` descends from, as far as they live."""
    found = list[int]()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            break
        found.append(pid)
    return found


def await_another_executor(known: set[int]) -> int:
    """An executor that is not among `known`; waits for one to be started."""
    while True:
        found = [pid for pid in executors() if pid not in known]
        if found:
            return found[0]
        time.sleep(0.05)


def kill_server(process: "subprocess.Popen[str]", running: Any, generator: random.Random) -> bool:
    """SIGKILL the server soon after the first batch was told; it is back at once, or when the run has ended. False: too late."""
    assert process.stdout is not None
    process.stdout.readline()
    let_pass(process, generator.uniform(0, 2))
    if process.poll() is not None:
        return False
    running.kill()
    if generator.random() < 0.5:
        process.wait(timeout=300)
    running.start()
    return True


def kill_often(world: World, generator: random.Random, *, wanted: int, files: int, rows_per_file: int) -> list[str]:
    """Run and kill until `wanted` runs were killed, fed again whenever the source was used up; then run to the end and sweep."""
    killed: list[str] = []
    while len(killed) < wanted:
        process = world.start("run", str(world.file), "--available-now", "--json")
        victim = kill_at_random(process, generator)
        out, err = ended(process)
        if victim is None:
            assert process.returncode == 0, out + err
            world.feed(generator, files=files, rows_per_file=rows_per_file)
        else:
            killed.append(victim)
            if generator.random() < 0.5:  # otherwise JVM and workers of the killed run go on beside the next one
                await_session_end(process.pid)
    world.run_to_the_end()  # zombies of the last kill may have left something
    return killed
