"""Whether the process that opened the newest generation still runs, as far as this machine can tell."""

import os
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path

_OWNER = re.compile(r"(?P<host>\S+) process (?P<pid>\d+)")
_START_TICKS = 19
"""Index of the start time among the fields of /proc/PID/stat that follow the command's name (proc(5), field 22)."""

_STATE = 0
_ENDED = frozenset({"Z", "X"})
_SLACK_MS = 2_000
"""The kernel tells the time of the boot in whole seconds, and clocks are set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The process that opened the newest generation. `state` is `running`, `stopped` or `unknown`; `text` says it for people.

    A process runs on after its query has ended where that is a notebook's: `status` then takes the driver for `stopped` if the
    query failed. After a stop that was asked for, only the ledger shows whether batches come. `host` and
    `pid` are None where the ledger does not name a process.
    """

    state: str
    text: str
    host: str | None = None
    pid: int | None = None

    def without_query(self) -> "Driver":
        """Return the driver, whose query has failed, as stopped; unchanged unless its process lives on."""
        if self.state != "running":
            return self
        return replace(self, state="stopped", text=f"none runs: the query has failed; its process {self.pid} lives on")


def driver_of(owner: str | None, *, opened_at_ms: int, proc: Path = Path("/proc")) -> Driver:
    """Return whether `owner` runs, who opened a generation at that time. A process of that number which is younger is another."""
    named = _OWNER.fullmatch(owner or "")
    if named is None:
        return Driver(state="unknown", text="not known from here")
    host, pid = named["host"], int(named["pid"])
    if host != socket.gethostname():
        return Driver(state="unknown", text=f"not known from here: it was process {pid} of {host}", host=host, pid=pid)
    runs = _runs(pid, opened_at_ms=opened_at_ms, proc=proc)
    if runs is None:
        return Driver(state="unknown", text=f"not known: this machine does not tell of its process {pid}", host=host, pid=pid)
    if runs:
        return Driver(state="running", text=f"process {pid} of this machine runs", host=host, pid=pid)
    return Driver(state="stopped", text=f"none runs: process {pid} of this machine has ended", host=host, pid=pid)


def _runs(pid: int, *, opened_at_ms: int, proc: Path) -> bool | None:
    try:
        booted_s = next(int(line.split()[1]) for line in (proc / "stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, StopIteration):
        return None
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    except OSError:
        return None
    started_ms = 1000 * (booted_s + int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK"))
    return fields[_STATE] not in _ENDED and started_ms <= opened_at_ms + _SLACK_MS
