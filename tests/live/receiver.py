"""A real `penstock receive` in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PIPELINE = """\
pipeline: clicks
home: ./state
receive:
  journal: ./journal
  least_free: 1MB
  {more}
sources:
  web: {{format: journal, path: ./journal}}
sinks:
  clicks: {{type: memory}}
"""


class Receiver:
    """`penstock receive` in `directory`, ready to take events; `more` is what else its settings have."""

    def __init__(self, directory: Path, more: str, *, environment: Mapping[str, str] | None = None) -> None:
        (directory / "clicks.yaml").write_text(PIPELINE.format(more=more))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "receive", "clicks.yaml", "--json"],
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.ready: dict[str, Any] = json.loads(line or "{}")
        assert "addresses" in self.ready, self.end()

    def address(self, protocol: str) -> tuple[str, int]:
        host, _, port = self.ready["addresses"][protocol].rpartition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self.end()

    def stop(self) -> int:
        """End it as an operator does; its exit code."""
        code, errors = self.end_by(signal.SIGTERM)
        assert "Traceback" not in errors, errors
        return code

    def end_by(self, number: signal.Signals) -> tuple[int, str]:
        """Its exit code, and what it said."""
        self._process.send_signal(number)
        return self.end()

    def wait(self) -> tuple[int, str]:
        """Await an end that it comes to by itself."""
        return self.end()

    def end(self) -> tuple[int, str]:
        _, errors = self._process.communicate(timeout=60)
        return self._process.returncode, errors
