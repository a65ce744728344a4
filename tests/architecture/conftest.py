"""Prints the sizes of files and functions after the tests of this folder."""

import pytest

from tests.architecture import sizes


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any("tests/architecture/test_sizes" in report.nodeid for report in terminalreporter.getreports("passed")):
        terminalreporter.section("sizes")
        terminalreporter.write("\n".join(sizes.report()) + "\n")
