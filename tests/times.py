"""`Times`, a plugin of pytest: tells at the end of a run where its time went, all workers' seconds together.

What a module or a session sets up is counted for the test that is the first to ask for it.
"""

from collections import Counter
from collections.abc import Callable

import pytest

SLOWEST = 40


class Times:
    """Counts the seconds of set-up, call and tear-down. `layer_of` names the layer of a file."""

    def __init__(self, layer_of: Callable[[str], str]) -> None:
        self._layer_of = layer_of
        self._of_layers: Counter[str] = Counter()
        self._of_files: Counter[str] = Counter()
        self._of_workers: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        for counted, name in (
            (self._of_layers, self._layer_of(file)),
            (self._of_files, file),
            (self._of_workers, getattr(report, "worker_id", "alone")),
        ):
            counted[name] += report.duration
            self._tests[name] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for title, seconds in (
            ("seconds of workers", self._of_workers),
            ("seconds by layer", self._of_layers),
            (f"seconds of the {SLOWEST} slowest files", self._of_files),
        ):
            terminalreporter.section(title)
            for name, taken in seconds.most_common(SLOWEST):
                terminalreporter.line(f"{taken:8.1f}  {name} ({self._tests[name]})")
