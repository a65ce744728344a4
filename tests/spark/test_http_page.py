"""The page about HTTP endpoints, with its own receiver: killed on the way, every row arrives once."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.servers.server import free_port, started, stop
from tests.spark.page import Page, Place, assert_told
from tests.spark.test_readme import feed

pytestmark = pytest.mark.usefixtures("spark")


class HttpPlace(Place):
    page = Page("http_sink")
    sink = "alerts"

    def arrived(self) -> "Counter[tuple[object, ...]]":
        with closing(sqlite3.connect(self.directory / "received.db")) as connection:
            lines = [json.loads(line) for (line,) in connection.execute("SELECT line FROM row")]
        return Counter(tuple(line.values()) for line in lines)


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Iterator[HttpPlace]:
    (tmp_path / "receiver.py").write_text(HttpPlace.page.blocks("python")[0])
    port = free_port()
    running: subprocess.Popen[bytes] = started(
        [sys.executable, "receiver.py", str(port)], port=port, log=tmp_path / "receiver.log"
    )
    try:
        yield HttpPlace(tmp_path, environment={"ALERTS_URL": f"http://127.0.0.1:{port}/s3cret/rows", "ALERTS_TOKEN": "any-token"})
    finally:
        stop(running)


def test_every_row_arrives_once_though_the_driver_is_killed_behind_the_requests(place: HttpPlace) -> None:
    sent = Counter(row for row in feed(place.directory / "incoming").elements() if row[3] is not None and row[3] > 0)
    place.file.write_text(re.sub(r"rows_per_request: \d+", "rows_per_request: 20", place.file.read_text()))
    killed = place.run("penstock run http_sink.yaml", faults="http.request=lost@2,http.mark=kill")
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert place.arrived() == sent
    for command in place.page.commands:
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert place.arrived() == sent
    verified = place.run("penstock verify http_sink.yaml --json")
    assert verified.returncode == 0
    assert json.loads(verified.stdout)["sinks"]["alerts"]["accounts"] == {}


def test_exactly_once_is_refused_where_the_receiver_forgets(place: HttpPlace) -> None:
    feed(place.directory / "incoming")
    place.file.write_text(place.file.read_text().replace("receiver: idempotent", "receiver: plain"))
    done = place.run("penstock run http_sink.yaml")
    assert_told(done, 3, "sink alerts (http) gives at_least_once", "set `receiver: idempotent`")
