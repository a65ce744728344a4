"""`Failures`, a plugin of pytest for runs that take long: shows each failure at once, and where a process that crashed was."""

import faulthandler
import re
from pathlib import Path
from typing import Any, TextIO

import pytest

_FRAMES_OF_TOOLS = re.compile(r"/(_pytest|pluggy|xdist|execnet)/|<string>")


class Failures:
    """Shows a failed test when it has ended, not only at the end of the run, which may be ended before.

    Of a worker that crashed it shows the stacks of all threads, without what pytest adds to each.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._stacks: TextIO | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.section(f"{report.nodeid}, {report.when}", red=True)
            terminal.line(report.longreprtext)
            for title, content in report.sections:
                terminal.section(title)
                terminal.line(content)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """In a worker, whose standard error shows the end of what Python writes there at most."""
        if hasattr(self._config, "workerinput"):
            self._stacks = self._stacks_of(self._config.workerinput["workerid"]).open("w")
            faulthandler.enable(file=self._stacks)

    def pytest_unconfigure(self) -> None:
        if self._stacks is not None:
            faulthandler.disable()
            self._stacks.close()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        stacks = self._stacks_of(node.gateway.id)
        text = stacks.read_text() if stacks.exists() else ""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if text and terminal is not None:
            terminal.section(f"{node.gateway.id} crashed", red=True)
            for line in text.splitlines():
                if not _FRAMES_OF_TOOLS.search(line) and not line.startswith("Extension modules"):
                    terminal.line(line)

    def _stacks_of(self, worker: str) -> Path:
        return self._config.cache.mkdir("stacks") / worker
