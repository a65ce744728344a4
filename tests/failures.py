"""`Failures`, a plugin of pytest for runs that take long: shows each failure at once."""

import pytest


class Failures:
    """Shows a failed test when it has ended, not only at the end of the run, which may be ended before."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.section(f"{report.nodeid}, {report.when}", red=True)
            terminal.line(report.longreprtext)
            for title, content in report.sections:
                terminal.section(title)
                terminal.line(content)
