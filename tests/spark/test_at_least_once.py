"""What cannot be exactly-once is refused with the reason, and runs, labelled, when no more than at-least-once is demanded."""

import socketserver
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import GuaranteeTooWeak
from penstock.model import Guarantee
from tests.servers.serving import serving
from tests.spark.target import Target

pytestmark = pytest.mark.spark

CONTINUOUS = """\
pipeline: endless
home: ./home
guarantee: {guarantee}
sources:
  ticks: {{format: rate, options: {{rowsPerSecond: 5, numPartitions: 1}}}}
sinks:
  screen: {{type: console}}
trigger: {{continuous: 1s}}
"""
SOCKET = """\
pipeline: numbers
home: ./home
guarantee: {guarantee}
sources:
  lines: {{format: socket, options: {{host: 127.0.0.1, port: {port}}}}}
transform: {{sql: "SELECT CAST(value AS INT) AS n FROM lines"}}
sinks:
  table: {{type: sqlite, url: "sqlite:///warehouse.db", table: numbers}}
"""


def pipeline(root: Path, text: str, **values: object) -> penstock.Pipeline:
    file = root / "pipeline.yaml"
    file.write_text(text.format(**values))
    return penstock.Pipeline.from_file(file)


class _Lines(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"1\n2\n2\n")
        self.wfile.flush()
        self.rfile.read()


@pytest.fixture
def port() -> Iterator[int]:
    socketserver.ThreadingTCPServer.daemon_threads = True
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Lines)
    with serving(server):
        yield server.server_address[1]


def test_continuous_is_refused_for_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(GuaranteeTooWeak, match="continuous"):
        pipeline(tmp_path, CONTINUOUS, guarantee="exactly_once").start(spark)


def test_continuous_runs_labelled_into_the_console(spark: SparkSession, tmp_path: Path) -> None:
    endless = pipeline(tmp_path, CONTINUOUS, guarantee="at_least_once")
    assert endless.check(spark).given is Guarantee.AT_LEAST_ONCE
    query = endless.start(spark)
    try:
        while query.isActive and not (tmp_path / "home/checkpoint/commits/1").exists():
            query.awaitTermination(0.1)
        assert query.isActive
    finally:
        query.stop()


def test_continuous_takes_no_sink_that_it_would_deliver_to_twice(spark: SparkSession, tmp_path: Path) -> None:
    text = CONTINUOUS.replace("{{type: console}}", '{{type: sqlite, url: "sqlite:///w.db", table: t}}')
    with pytest.raises(GuaranteeTooWeak, match="single console sink"):
        pipeline(tmp_path, text, guarantee="at_least_once").start(spark)


def test_a_socket_is_refused_for_exactly_once(spark: SparkSession, tmp_path: Path, port: int) -> None:
    with pytest.raises(GuaranteeTooWeak, match="socket"):
        pipeline(tmp_path, SOCKET, guarantee="exactly_once", port=port).start(spark)


def test_a_socket_runs_at_least_once_and_starts_again(spark: SparkSession, tmp_path: Path, port: int) -> None:
    """Every run has a new checkpoint, which the ledger adopts on record."""
    numbers = pipeline(tmp_path, SOCKET, guarantee="at_least_once", port=port)
    for run in (1, 2):
        query = numbers.start(spark)
        try:
            while query.isActive and not _arrived(tmp_path, 3 * run):
                query.awaitTermination(0.1)
        finally:
            query.stop()
    assert Target(tmp_path).rows() == {(1,): 2, (2,): 4}
    assert [row.kind for row in numbers.history()].count("adopted") == 1


def _arrived(root: Path, rows: int) -> bool:
    return (root / "warehouse.db").exists() and Target(root).rows().total() >= rows
