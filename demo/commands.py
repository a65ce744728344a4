"""Runs Penstock as anyone would, from the command line, and shows what is typed."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
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
            code = _told_briefly(_command(*words, "--json"), env, messages)
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


def _show_typed(words: "tuple[str, ...] | list[str]", faults: str) -> None:
    before = f"PENSTOCK_FAULTS={faults} " if faults else ""
    console.print(f"\n[bold green]$[/] [bold]{before}{shlex.join(['penstock', *words])}[/]")


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "penstock", *words]


def _told_briefly(command: list[str], env: dict[str, str], messages: Any) -> int:
    """On a terminal `run` shows its own progress; elsewhere it writes JSON lines, which are shortened here for people."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=messages, text=True) as process:
        for line in process.stdout or ():
            text = _shortened(line)
            if text:
                console.print(f"  {text}")
                sys.stdout.flush()
    return process.returncode


def _shortened(line: str) -> str:
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
