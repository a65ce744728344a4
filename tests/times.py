"""`Times`, a plugin of pytest: tells at the end of a run where its time went, all workers' seconds together.

What a module or a session sets up is counted for the test that is the first to ask for it. What the machine does is counted for
the layer whose test ends next: where workers are in different layers, or servers still run, that is a guess. What a worker's
processes compute, its servers' too, is counted for the file that has just ended.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SLOWEST = 40

COMPUTED_S = "computed_s"
"""The property of a file's last report: what the process and all that it started have computed meanwhile."""


class Times:
    """Counts the seconds of set-up, call and tear-down. `layer_of` names the layer of a file."""

    def __init__(self, layer_of: Callable[[str], str]) -> None:
        self._layer_of = layer_of
        self._of_layers: Counter[str] = Counter()
        self._of_files: Counter[str] = Counter()
        self._of_workers: Counter[str] = Counter()
        self._computed_in_layers: Counter[str] = Counter()
        self._computed_in_files: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()
        self._machine = Machine() if Path("/proc/stat").exists() else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        layer = self._layer_of(file)
        for counted, name in (
            (self._of_layers, layer),
            (self._of_files, file),
            (self._of_workers, getattr(report, "worker_id", "alone")),
        ):
            counted[name] += report.duration
            self._tests[name] += report.when == "call"
        computed_s = dict(report.user_properties).get(COMPUTED_S, 0) if report.when == "teardown" else 0
        self._computed_in_layers[layer] += computed_s
        self._computed_in_files[file] += computed_s
        if self._machine is not None and report.when == "call":
            self._machine.look(layer)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for title, seconds in (
            ("seconds of workers", self._of_workers),
            ("seconds by layer", self._of_layers),
            (f"seconds of the {SLOWEST} slowest files", self._of_files),
            ("processor seconds by layer", self._computed_in_layers),
            (f"processor seconds of the {SLOWEST} dearest files", self._computed_in_files),
        ):
            terminalreporter.section(title)
            for name, taken in seconds.most_common(SLOWEST):
                terminalreporter.line(f"{taken:8.1f}  {name} ({self._tests[name]})")
        if self._machine is not None:
            terminalreporter.section("the machine by layer")
            for line in self._machine.lines():
                terminalreporter.line(line)


class Computed:
    """Processor seconds of this process and of all below it, file by file: a plugin of each worker, on Linux alone."""

    def __init__(self) -> None:
        self._before_s = 0.0

    def pytest_runtestloop(self) -> None:
        self._before_s = computed_s()  # without what collecting has cost

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        yield
        if nextitem is None or nextitem.path != item.path:
            now_s = computed_s()
            item.user_properties.append((COMPUTED_S, max(now_s - self._before_s, 0)))  # less where a process had lost its parent
            self._before_s = now_s


def computed_s() -> float:
    """What this process and those below it have computed since they began, with those that ended."""
    children, ticks = defaultdict(list), Counter[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            words = process.joinpath("stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            children[int(words[1])].append(int(process.name))
            ticks[int(process.name)] = sum(map(int, words[11:15]))
    below = [os.getpid()]
    for pid in below:
        below += children[pid]
    return sum(ticks[pid] for pid in below) / os.sysconf("SC_CLK_TCK")


class Machine:
    """How busy the processors were between two looks, and how much memory was left: on Linux alone."""

    def __init__(self) -> None:
        self._busy: Counter[str] = Counter()
        self._all: Counter[str] = Counter()
        self._least_mb: dict[str, int] = {}
        self._before = self._ticks()

    def look(self, layer: str) -> None:
        busy, everything = now = self._ticks()
        self._busy[layer] += busy - self._before[0]
        self._all[layer] += everything - self._before[1]
        self._before = now
        available_mb = _available_mb()
        self._least_mb[layer] = min(available_mb, self._least_mb.get(layer, available_mb))

    def lines(self) -> Iterator[str]:
        for layer, ticks in self._all.most_common():
            busy, left = self._busy[layer], f"{self._least_mb[layer]} MB left at the least"
            yield f"{busy / 100:8.1f}  {layer}: processors were busy for {busy / max(ticks, 1):.0%} of it, {left}"

    @staticmethod
    def _ticks() -> tuple[int, int]:
        """Processor time in hundredths of a second: busy, and all."""
        with Path("/proc/stat").open(encoding="ascii") as stat:
            ticks = [int(word) for word in stat.readline().split()[1:9]]
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # without idle and waiting for a disk


def _available_mb() -> int:
    with Path("/proc/meminfo").open(encoding="ascii") as memory:
        return next(int(line.split()[1]) // 1024 for line in memory if line.startswith("MemAvailable:"))
