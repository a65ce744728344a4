"""Redirects Spark's messages to a file while a run is shown on a terminal, so that they do not break the display."""

import os
import sys
from pathlib import Path

from typing_extensions import Self

from penstock.support.private_files import make_private_directory, open_private

_STDERR = 2


class SparkLog:
    """Sends what the JVM writes to stderr to `<home>/spark.log` while entered; the previous run's log stays as `.1`.

    Only the file descriptor is redirected: Python's `sys.stderr` is not, once the display has taken it over. If the file cannot
    be written, nothing is redirected; the run itself reports what is wrong with the directory.
    """

    def __init__(self, home: str) -> None:
        self.path = Path(home) / "spark.log"
        self._terminal: int | None = None

    def __enter__(self) -> Self:
        try:
            make_private_directory(self.path.parent)
            if self.path.exists():
                self.path.replace(self.path.with_suffix(".log.1"))
            file = open_private(self.path, "xb")
        except OSError:
            return self
        sys.stderr.flush()
        self._terminal = os.dup(_STDERR)
        with file:
            os.dup2(file.fileno(), _STDERR)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._terminal is not None:
            sys.stderr.flush()
            os.dup2(self._terminal, _STDERR)
            os.close(self._terminal)
            self._terminal = None

    def location(self) -> str | None:
        """Return the path of Spark's messages of this run, None if there are none."""
        try:
            return str(self.path) if self.path.stat().st_size else None
        except OSError:
            return None
