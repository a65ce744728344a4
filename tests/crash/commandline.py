"""`penstock` in the test's own process: a command finds the shared Spark session active and need not start a Java process.

Everything else is as in a process of its own: arguments, directory, environment, exit code, standard output and error.
"""

import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import main
from penstock.core.faults import arm

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> dict[str, Any]:
        """The last object on standard output."""
        value: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return value

    def __str__(self) -> str:
        return f"exit {self.code}\n{self.out}{self.err}"


def penstock(
    *arguments: str, faults: str = "", directory: Path | None = None, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run `penstock ARGUMENTS` with `faults` armed, in `directory`, with `environment` added to this process's own."""
    out, err, loaded = io.StringIO(), io.StringIO(), set(sys.modules)
    arm(faults)
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as changed:
            changed.chdir(directory or Path.cwd())
            for name, value in (environment or {}).items():
                changed.setenv(name, value)
            main(arguments)
    except SystemExit as left:
        code = left.code
    finally:
        arm("")
        _forget_users(set(sys.modules) - loaded)
    assert isinstance(code, int)
    return Ended(code, out.getvalue(), err.getvalue())


def _forget_users(names: set[str]) -> None:
    """Forget modules from beside a pipeline file: another test's may have the same name."""
    for name in names:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and not any(Path(file).is_relative_to(place) for place in (_ROOT, sys.prefix, sys.base_prefix)):
            del sys.modules[name]
