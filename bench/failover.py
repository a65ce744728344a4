"""From SIGKILL of the active driver, or of its whole machine, to the first batch that the standby delivers."""

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.crash.killing import await_session_end, session_of

from bench.measuring import Bench, require_content
from bench.result import PENSTOCK, Case, Table

ROWS = 1_000
ROUNDS = 20
LEASE_S = 1.0
STANDBY, COLD = "a warm standby", "a cold start"
QUANTILES = {"p50": 0.5, "p99": 0.99}
_CPU_TIMES = slice(11, 13)
"""Fields utime and stime of /proc/PID/stat, behind the command's name."""

_LOOK_S, _DEADLINE_S = 0.005, 300.0

PIPELINE = """\
pipeline: failover
home: ./state
ledger: ./state/ledger
spark: {{master: "local[2]", conf: {{spark.ui.enabled: false, spark.log.level: "OFF"}}}}
sources: {{orders: {{format: csv, path: ./incoming, schema: "id INT", options: {{maxFilesPerTrigger: 1}}}}}}
sinks: {{table: {{type: sqlite, url: "sqlite:///orders.db", table: orders}}}}
trigger: {{processing_time: 100ms}}
"""


@dataclass
class Site:
    """A pipeline, what was put into it, and the processes that look after it."""

    root: Path
    files: int = 0
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.root / "pipeline.yaml"

    def make(self) -> None:
        (self.root / "incoming").mkdir(parents=True)
        self.file.write_text(PIPELINE.format())

    def feed(self) -> None:
        """Put one more file in place, whole."""
        hidden = self.root / "incoming" / f".{self.files}.csv"
        hidden.write_text("".join(f"{self.files * ROWS + row}\n" for row in range(ROWS)))
        hidden.rename(hidden.with_name(f"{self.files}.csv"))
        self.files += 1

    def await_all(self) -> None:
        """Wait until everything was delivered."""
        deadline = time.monotonic() + _DEADLINE_S
        while self.rows() < self.files * ROWS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.rows()} rows after {_DEADLINE_S:.0f} s, expected {self.files * ROWS}")
            time.sleep(_LOOK_S)
        require_content(self.rows(), self.files * ROWS, writer=PENSTOCK)

    def rows(self) -> int:
        with suppress(sqlite3.OperationalError), sqlite3.connect(f"file:{self.root}/orders.db?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM orders").fetchone()[0])
        return 0

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "penstock", *words, str(self.file), "--json"]
        out, err = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(command, cwd=self.root, stdout=out, stderr=err, text=True, start_new_session=True)
        self.started.append(process)
        return process

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=_DEADLINE_S)


class Supervisor:
    """A `penstock supervise --standby`, and the process of its newest driver."""

    def __init__(self, site: Site) -> None:
        self.process, self.driver = site.start("supervise", "--standby", f"--lease={LEASE_S}"), 0

    def await_event(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)["text"]
            if event.startswith("started as process"):
                self.driver = int(event.split()[-1])
            if text in event:
                return
        raise RuntimeError(f"The supervisor ended before it said {text!r}.")


@dataclass(frozen=True)
class Takeovers:
    """What each round took: seconds until the first batch, processor seconds of all processes of the driver that took over."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


def measure(bench: Bench) -> Iterator[Table]:
    """Rounds of kills, each with a standby that has just become warm."""
    rounds = bench.sized(ROUNDS, 1)
    loads = [os.getloadavg()[0]]
    found = {}
    for name, whole in (("its driver is killed", False), ("supervisor and driver are killed", True)):
        found[name] = _takeovers(Site(bench.scratch / f"whole-{whole}"), rounds, whole=whole)
        loads.append(os.getloadavg()[0])
    cold = _cold_starts(Site(bench.scratch / "cold"), rounds)
    loads.append(os.getloadavg()[0])
    cpu_s = median(taken for each in found.values() for taken in each.cpu_s)
    yield Table(
        name="failover",
        title="Failover: from SIGKILL of the active one to the first batch delivered by another",
        unit="s",
        ours=(STANDBY,),
        cases=tuple(Case(name=name, figures={STANDBY: each.seconds, COLD: cold}) for name, each in found.items()),
        note=f"`penstock supervise --standby --lease {LEASE_S:g}`, a local file source, {ROWS:,} rows a file, a SQLite table, "
        f"{rounds} takeovers of each kind. Where the supervisor is killed, too, the lease has to lapse first. The cold start is "
        "a `penstock run` that begins when the driver is killed. Load average meanwhile: "
        f"{min(loads):.0f} to {max(loads):.0f}; a takeover took a median of {cpu_s:.1f} processor seconds.",
    )
    yield Table(
        name="quantiles",
        title="The same, of all takeovers",
        unit="s",
        ours=(STANDBY,),
        comparison="alone",
        cases=tuple(
            Case(name=f"{name}, {quantile}", figures={STANDBY: [quantile_of(each.seconds, at)]})
            for name, each in found.items()
            for quantile, at in QUANTILES.items()
        ),
    )


def quantile_of(figures: Sequence[float], at: float) -> float:
    """The smallest figure that a share `at` of them does not exceed."""
    return sorted(figures)[math.ceil(at * len(figures)) - 1]


def cpu_seconds(leader: int) -> float:
    """What the living processes of a driver's session have taken of the processors."""
    ticks = 0
    for pid in session_of(leader):
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_CPU_TIMES]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _takeovers(site: Site, rounds: int, *, whole: bool) -> Takeovers:
    """`whole`: the supervisor is killed as well. Else it is ended afterwards: it starts a driver that fails again ever later."""
    site.make()
    site.feed()
    try:
        active = Supervisor(site)
        active.await_event("begins")
        site.await_all()
        standby = Supervisor(site)
        taken = Takeovers()
        for _ in range(rounds):
            standby.await_event("waits")
            killed = [active.process.pid, active.driver] if whole else [active.driver]
            before_s, began = cpu_seconds(standby.driver), time.perf_counter()
            for process in killed:
                os.kill(process, signal.SIGKILL)
            site.feed()
            site.await_all()
            taken.seconds.append(time.perf_counter() - began)
            taken.cpu_s.append(cpu_seconds(standby.driver) - before_s)
            await_session_end(killed[-1])
            standby.await_event("begins")
            active.process.terminate()
            active, standby = standby, Supervisor(site)
    finally:
        site.end()
    return taken


def _cold_starts(site: Site, rounds: int) -> list[float]:
    """Seconds of each start of another process, after the one before was killed."""
    site.make()
    site.feed()
    driver = site.start("run")
    site.await_all()
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        driver.kill()
        site.feed()
        killed, driver = driver, site.start("run")
        site.await_all()
        taken.append(time.perf_counter() - began)
        await_session_end(killed.pid)
    site.end()
    return taken
