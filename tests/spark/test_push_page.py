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

from penstock.source.journal.data_source import COLUMNS
from tests.architecture.reading import ROOT
from tests.crash.commandline import penstock

pytestmark = pytest.mark.usefixtures("spark")

PAGE = (ROOT / "docs" / "howto" / "push.md").read_text()
[PIPELINE, *_] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
CURLS = [line for line in PAGE.splitlines() if line.startswith("curl ")]
ANSWERS = [line for line in PAGE.splitlines() if line.startswith('{"sequences"')]
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


def said_by(curl: str) -> str:
    return subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True).stdout


def test_the_page_has_all_columns_of_the_source() -> None:
    table = PAGE.partition("A source of journals has these columns:")[2].partition("##")[0]
    shown = [name for line in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)]
    assert shown == re.findall(r"(?:^|, )(\w+) (?=[A-Z])", re.sub(r"<.*?>>", "", COLUMNS))


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
    once, numbered = [f"{curl} -s".replace("127.0.0.1:8080", addresses["http"]) for curl in CURLS]
    assert [said_by(curl) for curl in (once, numbered)] == ANSWERS
    assert said_by(numbered) == ANSWERS[1].replace('"repeats": 0', '"repeats": 1')
    lines = [f"line {number}" for number in range(200)]
    assert push(addresses["tcp"], lines[:120]) == [f"OK {number}" for number in range(2, 122)]
    ended(process, signal.SIGKILL)

    killed = penstock("run", "clicks.yaml", "--available-now", "--json", faults="ledger.sqlite_commit=lost@2", directory=tmp_path)
    assert killed.code in {0, 1, 75}, str(killed)
    process, addresses = started(tmp_path)
    assert push(addresses["tcp"], lines[120:]) == [f"OK {number}" for number in range(122, 202)]
    done = penstock("run", "clicks.yaml", "--available-now", "--json", directory=tmp_path)
    assert done.code == 0, str(done)
    ended(process, signal.SIGTERM)
    assert process.returncode == 0

    with sqlite3.connect(tmp_path / "clicks.db") as connection:
        rows = connection.execute("SELECT value, sequence FROM clicks").fetchall()
    pushed = ['{"page": 1}', '{"page": 2}', *lines]
    assert Counter(rows) == Counter((line, number) for number, line in enumerate(pushed))
    assert penstock("verify", "clicks.yaml", directory=tmp_path).code == 0
