"""Runs Penstock as anyone would, from the command line, and shows what is typed."""

import ctypes
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

HERE = Path(__file__).resolve().parent
WORK = HERE / "work"
MESSAGES = WORK / "messages.log"
COMMAND = "penstock" if shutil.which("penstock") else os.path.relpath(Path(sys.executable).parent / "penstock")
PIPELINE = os.path.relpath(HERE / "flights.yaml")

console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def penstock(*words: str, faults: str = "") -> int:
    """Run one command, show its output, and return its exit code; a negative one is the signal that ended it."""
    _show_typed(words, faults)
    env = {**os.environ, "PENSTOCK_FAULTS": faults}
    sys.stdout.flush()
    with MESSAGES.open("w") as messages:  # of Spark's; shown if the command fails
        if words[0] != "run" or sys.stdout.isatty():
            code = subprocess.run(_command(*words), env=env, stderr=messages, check=False).returncode
        else:
            code = _run_briefly(_command(*words, "--json"), env, messages)
    if code == -signal.SIGKILL and sys.stdout.isatty():  # it could not tidy up the line it was drawing
        console.print()
        console.show_cursor()
    if code not in {0, -signal.SIGKILL}:
        console.print(MESSAGES.read_text(errors="replace"), markup=False)
    return code


def answer(*words: str) -> Any:
    """Run one command with --json and return the value that it prints."""
    _show_typed([*words, "--json"], "")
    return json.loads(subprocess.run(_command(*words, "--json"), stdout=subprocess.PIPE, check=True).stdout)


class Background:
    """A command that runs beside others. `on_line` gets each line that it prints with --json, in a thread of its own.

    It ends with the demo, also if that is killed (on Linux), so that the next demo finds the journal and the port free.
    """

    def __init__(self, *words: str, on_line: Callable[[str], None], faults: str = "") -> None:
        _show_typed([*words, "&"], faults)
        self.messages, self._on_line = WORK / f"{words[0]}.log", on_line
        with self.messages.open("w") as messages:
            self._process = subprocess.Popen(
                _command(*words, "--json"),
                env={**os.environ, "PENSTOCK_FAULTS": faults},
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - it calls the kernel only
            )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def ended_by(self) -> int | None:
        """Its exit code, a signal as a negative number; None while it runs."""
        return self._process.poll()

    def end(self, by: signal.Signals) -> int:
        """Send it a signal and return its exit code."""
        self._process.send_signal(by)
        code = self._process.wait()
        self._reading.join()
        return code

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._on_line(line)


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_PR_SET_PDEATHSIG = 1


def _show_typed(words: Sequence[str], faults: str) -> None:
    before = f"PENSTOCK_FAULTS={faults} " if faults else ""
    typed = shlex.join(["penstock", *words]).replace("'&'", "&")
    console.print(f"\n[bold green]$[/] [bold]{before}{typed}[/]")


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "penstock", *words]


def _run_briefly(command: list[str], env: dict[str, str], messages: Any) -> int:
    """On a terminal `run` shows its own progress; elsewhere it writes JSON lines, which are shortened here for people."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=messages, text=True) as process:
        for line in process.stdout or ():
            text = shortened(line)
            if text:
                console.print(f"  {text}")
                sys.stdout.flush()
    return process.returncode


def shortened(line: str) -> str:
    """One line that `run --json` prints, for people; nothing for what is no batch."""
    try:
        value = json.loads(line)
    except ValueError:
        return line.rstrip()
    if "batch_id" not in value:
        return ""
    batch = f"batch {value['batch_id']:>2}"
    if value["recovered"]:
        return f"{batch}  decided by the killed run, published now"
    if value["already"]:
        return f"{batch}  run again by Spark, recognised: already committed"
    return f"{batch}  {value['rows_in']:>7,} rows delivered"
