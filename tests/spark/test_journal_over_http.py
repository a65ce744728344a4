"""The page's pipeline that reads a journal over HTTP: its receiver is killed meanwhile, and every event is a row once."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.journal.event import Event
from penstock.journal.journal import Journal, JournalLimits
from penstock.journal.readers import registrations
from penstock.journal.storage import LocalStorage
from tests.architecture.reading import ROOT
from tests.crash.commandline import penstock
from tests.servers.server import free_port

pytestmark = pytest.mark.usefixtures("spark")

PAGE = (ROOT / "docs" / "howto" / "push.md").read_text()
[WHOLE, *_] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
[REMOTE] = [text for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if 'url: "http' in text]


def pipeline(port: int) -> str:
    """The page's first pipeline with what its section on HTTP puts in place of `receive` and `sources`."""
    head, _, rest = WHOLE.partition("receive:\n")
    tail = rest[rest.index("transform:") :]
    remote = REMOTE.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:8081", f"127.0.0.1:{port}")
    return head + remote.replace("format: journal,", "format: journal, options: {maxRecordsPerTrigger: 100},") + tail


def receiver(directory: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "penstock", "receive", "clicks.yaml", "--json"]
    process = subprocess.Popen(command, cwd=directory, env=os.environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "read" in json.loads(process.stdout.readline())["addresses"]
    return process


def push(home: Path, count: int) -> None:
    journal = Journal(home, now_us=lambda: 1_700_000_000_000_000, limits=JournalLimits(segment_bytes=5_000, least_free_bytes=0))
    for number in range(1, count + 1):
        journal.append([Event(value=b"event %d" % number, producer="p", number=number)])
    journal.commit()
    journal.close()


def test_a_receiver_that_is_killed_while_it_is_read_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKS_TOKEN", "t0ken")
    monkeypatch.setenv("READ_TOKEN", "0ther")
    (tmp_path / "clicks.yaml").write_text(pipeline(free_port()))
    push(tmp_path / "journal", 500)
    process = receiver(tmp_path)
    command = [sys.executable, "-m", "penstock", "run", "clicks.yaml", "--available-now", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        lines: list[Any] = []
        for line in driver.stdout:
            lines.append(json.loads(line))
            if len(lines) in {1, 3}:
                process.send_signal(signal.SIGKILL)
                process.communicate(timeout=60)
                process = receiver(tmp_path)
    assert driver.returncode == 0
    assert lines[-1]["batches"] == 5, lines
    status = json.loads(penstock("status", "clicks.yaml", "--json", directory=tmp_path).out)
    assert [(each["records"], each["lost"]) for each in status["journals"]] == [(0, 0)]
    [registered] = registrations(LocalStorage(), tmp_path / "journal")
    assert (registered.reader, registered.next, registered.planned) == ("clicks/web", 400, 500)
    with sqlite3.connect(tmp_path / "clicks.db") as connection:
        rows = connection.execute("SELECT value, sequence FROM clicks").fetchall()
    assert Counter(rows) == Counter((f"event {number + 1}", number) for number in range(500))
    process.terminate()
    process.communicate(timeout=60)

    away = penstock("status", "clicks.yaml", "--json", directory=tmp_path)
    assert "does not answer" in json.loads(away.out)["lag_unknown"][0]
    assert "0ther" not in away.out + away.err
