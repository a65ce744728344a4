"""From SIGKILL of the active driver, or of its whole machine, to the first batch that the standby delivers."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.killing import await_session_end

from bench.measuring import Bench, require_content
from bench.result import PENSTOCK, Case, Table

ROWS = 1_000
LEASE_S = 1.0
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


def measure(bench: Bench) -> Iterator[Table]:
    """Rounds of kills: the one that was killed becomes the standby of the next round."""
    rounds, standby = bench.rounds, "a warm standby"
    cold = _cold_starts(Site(bench.scratch / "cold"), rounds)
    cases = {
        "its driver is killed": _takeovers(Site(bench.scratch / "driver"), rounds, whole=False),
        "supervisor and driver are killed": _takeovers(Site(bench.scratch / "machine"), rounds, whole=True),
    }
    yield Table(
        name="failover",
        title="Failover: from SIGKILL of the active one to the first batch delivered by another",
        unit="s",
        ours=(standby,),
        cases=tuple(Case(name=name, figures={standby: taken, "a cold start": cold}) for name, taken in cases.items()),
        note=f"`penstock supervise --standby --lease {LEASE_S:g}`, a local file source, {ROWS:,} rows a file, a SQLite table. "
        "Where the supervisor is killed, too, the lease has to lapse first. The cold start is a `penstock run` that "
        "begins when the driver is killed.",
    )


def _takeovers(site: Site, rounds: int, *, whole: bool) -> list[float]:
    """Seconds of each takeover. `whole`: the supervisor is killed as well, and another one started."""
    site.make()
    site.feed()
    try:
        active = Supervisor(site)
        active.await_event("begins")
        site.await_all()
        standby = Supervisor(site)
        taken = []
        for _ in range(rounds):
            standby.await_event("waits")
            killed = [active.process.pid, active.driver] if whole else [active.driver]
            began = time.perf_counter()
            for process in killed:
                os.kill(process, signal.SIGKILL)
            site.feed()
            site.await_all()
            taken.append(time.perf_counter() - began)
            await_session_end(killed[-1])
            standby.await_event("begins")
            active, standby = standby, Supervisor(site) if whole else active
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
