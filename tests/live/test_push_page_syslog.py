"""The page about pushed events, of syslog: the commands that it shows, and lines that nobody answers."""

import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from tests.architecture.reading import ROOT
from tests.live.receiver import Receiver

from penstock.journal.event import Event
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage

PAGE = (ROOT / "docs" / "howto" / "push.md").read_text()
[SETTINGS] = re.findall(r"^receive:\n  journal: .*\n((?:  syslog.*\n)+)", PAGE, re.MULTILINE)
LOGGER = [line for line in PAGE.splitlines() if line.startswith("logger ")]


def events(directory: Path, *, until: int) -> list[Event]:
    """The journal's events once there are so many."""
    reader, deadline = JournalReader(LocalStorage(), directory / "journal"), time.monotonic() + 30
    while (extent := reader.extent()) is None or extent.next < until:
        assert time.monotonic() < deadline, extent
        threading.Event().wait(0.01)  # senders of syslog are not told what is durable
    return [record.event for record in reader.read(0, extent.next, journal_id=extent.journal_id)]


def test_a_system_s_logger_and_clients_that_read_no_answers_are_heard(tmp_path: Path) -> None:
    settings = SETTINGS.replace("6514", "0").replace("5514", "0")
    started = Receiver(tmp_path, f"tcp: {{listen: 127.0.0.1:0, acknowledge: false}}\n{settings}")
    (_, tcp), (_, udp) = started.address("syslog"), started.address("syslog_udp")
    over_tcp, over_udp = [line.replace("6514", str(tcp)).replace("5514", str(udp)) for line in LOGGER]
    subprocess.run(["bash", "-c", over_tcp], check=True)
    [first] = events(tmp_path, until=1)
    subprocess.run(["bash", "-c", over_udp], check=True)
    second = events(tmp_path, until=2)[1]
    for event, text in ((first, b"backup is done"), (second, b"disk is full")):
        headers = dict(event.headers)
        assert event.value.endswith(text)
        assert (headers["facility"], headers["severity"], headers["app_name"]) == (b"1", b"5", b"nightly")
        assert event.value.startswith(b"<13>1 " + headers["timestamp"])
    for protocol, lines in (("tcp", b"a\nb\ntorn"), ("syslog", b"<1>c\n12x <1>no length\n")):
        with socket.create_connection(started.address(protocol), timeout=30) as client:
            client.sendall(lines)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b"", "nothing but the end"
    code, errors = started.end_by(signal.SIGTERM)
    assert (code, errors) == (0, "")
    assert [event.value for event in events(tmp_path, until=5)[2:]] == [b"a", b"b", b"<1>c"]
