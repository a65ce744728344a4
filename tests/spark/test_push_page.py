"""The page about pushed events: receiver and driver are killed while a client sends, and every event is a row once."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture.reading import ROOT
from tests.crash.commandline import penstock

pytestmark = pytest.mark.usefixtures("spark")

PAGE = (ROOT / "docs" / "howto" / "push.md").read_text()
[PIPELINE, *_] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
[CURL] = [line for line in PAGE.splitlines() if line.startswith("curl ")]
[ANSWER] = [line for line in PAGE.splitlines() if line.startswith('{"sequences"')]
COMMANDS = re.findall(r"^penstock .*$", PAGE, re.MULTILINE)


def started(directory: Path) -> "tuple[subprocess.Popen[str], dict[str, str]]":
    process = subprocess.Popen(
        [sys.executable, "-m", *COMMANDS[0].split(), "--json"], cwd=directory, env=os.environ, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    addresses: dict[str, str] = json.loads(process.stdout.readline())["addresses"]
    return process, addresses


def ended(process: "subprocess.Popen[str]", how: signal.Signals) -> None:
    process.send_signal(how)
    process.communicate(timeout=60)


def push(address: str, lines: list[str]) -> list[str]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client, client.makefile("rw") as file:
        file.write("AUTH t0ken\n" + "".join(f"{line}\n" for line in lines))
        file.flush()
        return [file.readline().strip() for _ in lines]


def test_the_page_works_though_receiver_and_driver_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKS_TOKEN", "t0ken")
    assert COMMANDS == ["penstock receive clicks.yaml", "penstock run clicks.yaml"]
    ports = PIPELINE.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:9090", "127.0.0.1:0")
    (tmp_path / "clicks.yaml").write_text(ports)
    process, addresses = started(tmp_path)
    curl = CURL.replace("127.0.0.1:8080", addresses["http"])
    shown = subprocess.run(["bash", "-c", f"{curl} -s"], capture_output=True, text=True, check=True)
    assert shown.stdout == ANSWER
    lines = [f"line {number}" for number in range(200)]
    assert push(addresses["tcp"], lines[:120]) == [f"OK {number}" for number in range(1, 121)]
    ended(process, signal.SIGKILL)

    killed = penstock("run", "clicks.yaml", "--available-now", "--json", faults="ledger.sqlite_commit=lost@2", directory=tmp_path)
    assert killed.code in {0, 1, 75}, str(killed)
    process, addresses = started(tmp_path)
    assert push(addresses["tcp"], lines[120:]) == [f"OK {number}" for number in range(121, 201)]
    done = penstock("run", "clicks.yaml", "--available-now", "--json", directory=tmp_path)
    assert done.code == 0, str(done)
    ended(process, signal.SIGTERM)
    assert process.returncode == 0

    with sqlite3.connect(tmp_path / "clicks.db") as connection:
        rows = connection.execute("SELECT value, sequence FROM clicks").fetchall()
    assert Counter(rows) == Counter([('{"page": 1}', 0), *((line, number) for number, line in enumerate(lines, 1))])
    assert penstock("verify", "clicks.yaml", directory=tmp_path).code == 0
