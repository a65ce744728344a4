"""Processes of the command line beside one another, each with the processor seconds and the memory of its whole family."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UTIME, _CSTIME, _PARENT, _RSS = 11, 14, 1, 21
"""Places in /proc/PID/stat, behind the name of the process."""


class Process:
    """`penstock WORDS` in a session of its own. `memory`: bytes at each look since `begin`."""

    def __init__(self, *words: str, name: str) -> None:
        self._words, self._name = words, name
        self._used_s: dict[int, float] = {}
        self._begun_s = 0.0
        self.memory: list[int] = []

    def open(self, directory: Path, environment: Mapping[str, str], *, terminal: int | None = None) -> None:
        """Start it. Its output goes to `NAME.out`, or to `terminal`; its errors to `NAME.err`."""
        with (directory / f"{self._name}.out").open("wb") as out, (directory / f"{self._name}.err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *self._words],
                cwd=directory,
                env={**os.environ, **environment, "TERM": "xterm", "COLUMNS": "140"},
                stdin=subprocess.DEVNULL,
                stdout=out if terminal is None else terminal,
                stderr=err,
                start_new_session=True,
            )

    def look(self) -> None:
        """Add to what was seen. What a process used that has ended since is kept."""
        stats = _stats()
        memory = 0
        for pid in _family(self.process.pid, stats):
            self._used_s[pid] = sum(map(int, stats[pid][_UTIME : _UTIME + 2])) / _TICKS_PER_S
            memory += int(stats[pid][_RSS]) * _PAGE_BYTES
        self.memory.append(memory)

    def begin(self) -> None:
        """Take what it used until now as its start, which `used_s` leaves out."""
        self.look()
        self._begun_s, self.memory = sum(self._used_s.values()), []

    @property
    def used_s(self) -> float:
        """Processor seconds since `begin`, by the last look."""
        return sum(self._used_s.values()) - self._begun_s

    @property
    def memory_by_thirds(self) -> Sequence[int]:
        """Megabytes, the mean of each third of the time."""
        size = max(1, len(self.memory) // 3)
        parts = (self.memory[:size], self.memory[size : 2 * size], self.memory[2 * size :])
        return [sum(part) // max(1, len(part)) // 1_000_000 for part in parts]

    def end(self) -> int:
        """SIGTERM; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(300)

    def kill(self) -> None:
        """With its family, unless it has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _stats() -> Mapping[int, Sequence[str]]:
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                found[int(path.name)] = (path / "stat").read_text().rpartition(")")[2].split()
    return found


def _family(leader: int, stats: Mapping[int, Sequence[str]]) -> Iterator[int]:
    """Yield the process and all below it."""
    wanted = [leader] if leader in stats else []
    while wanted:
        pid = wanted.pop()
        yield pid
        wanted += [child for child, stat in stats.items() if int(stat[_PARENT]) == pid]


class Screen:
    """What is written to a terminal of 140 columns: all of it in a file, and the last part here."""

    def __init__(self, file: Path) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 140, 0, 0))
        self._file, self._last = file, b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def last(self) -> str:
        """The newest part, some screens long."""
        return self._last.decode(errors="replace")

    def _read(self) -> None:
        with suppress(OSError), self._file.open("wb") as file:
            while part := os.read(self._ours, 65_536):
                self._last = (self._last + part)[-40_000:]
                file.write(part)

    def close(self) -> None:
        os.close(self.theirs)
        self._thread.join(10)
        os.close(self._ours)


@contextmanager
def screen(file: Path) -> Iterator[Screen]:
    """A terminal, whose text goes to `file`, too."""
    opened = Screen(file)
    try:
        yield opened
    finally:
        opened.close()
