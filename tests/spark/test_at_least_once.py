"""What cannot be exactly-once is refused with the reason, and runs, labelled, when no more than at-least-once is demanded."""

import json
import socketserver
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.core.model import Guarantee
from penstock.errors import GuaranteeTooWeak, Usage
from tests.servers.fixtures import server, unique
from tests.servers.kafka import records, send
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
    with pytest.raises(GuaranteeTooWeak, match="single sink of type console, kafka or memory"):
        pipeline(tmp_path, text, guarantee="at_least_once").start(spark)


INTO_TOPIC = """\
pipeline: endless
home: ./home
guarantee: {guarantee}
sources:
  ticks: {source}
transform: {{sql: "{sql}"}}
sinks:
  topic: {{type: kafka, bootstrap: "{bootstrap}", topic: {topic}, value: json}}
output_mode: {mode}
trigger: {trigger}
"""
RATE = "{format: rate, options: {rowsPerSecond: 20, numPartitions: 1}}"
OF_RATE, OF_TOPIC = "SELECT value AS n FROM ticks", "SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM ticks"
CONTINUOUSLY = {"trigger": "{continuous: 1s}", "mode": "append", "source": RATE, "sql": OF_RATE}


def real_time(topic: str) -> dict[str, str]:
    options = f'{{kafka.bootstrap.servers: "{server("kafka").bootstrap}", subscribe: {topic}, startingOffsets: earliest}}'
    source = f"{{format: kafka, reader: spark, options: {options}}}"
    return {"trigger": "{real_time: 5s}", "mode": "update", "source": source, "sql": OF_TOPIC}


@pytest.fixture
def into() -> dict[str, str]:
    running = server("kafka")
    return {"bootstrap": running.bootstrap, "topic": str(running.topic(unique("endless")))}


def shown(into: dict[str, str]) -> Counter[int]:
    return Counter(json.loads(record.value())["n"] for record in records(into["bootstrap"], into["topic"]))


def await_that(happened: Callable[[], bool], query: penstock.Query) -> None:
    while not happened():
        assert not query.awaitTermination(0.2)


def test_continuous_goes_on_into_a_topic_and_loses_nothing(spark: SparkSession, tmp_path: Path, into: dict[str, str]) -> None:
    with pytest.raises(GuaranteeTooWeak, match="continuous"):
        pipeline(tmp_path, INTO_TOPIC, guarantee="exactly_once", **into, **CONTINUOUSLY).start(spark)
    endless = pipeline(tmp_path, INTO_TOPIC, guarantee="at_least_once", **into, **CONTINUOUSLY)
    assert_labelled(endless, spark, "trigger continuous")
    for _ in range(2):
        seen = len(shown(into))
        query = endless.start(spark)
        await_that(lambda seen=seen: len(shown(into)) > seen + 20, query)  # type: ignore[misc]
        query.stop()
    assert_labelled(endless, spark, "trigger continuous")
    found = shown(into)
    assert set(found) == set(range(max(found) + 1))


def test_real_time_goes_on_into_a_topic_and_loses_nothing(spark: SparkSession, tmp_path: Path, into: dict[str, str]) -> None:
    incoming = str(server("kafka").topic(unique("incoming")))
    settings = {**into, **real_time(incoming)}
    with pytest.raises(GuaranteeTooWeak, match="real_time"):
        pipeline(tmp_path, INTO_TOPIC, guarantee="exactly_once", **settings).start(spark)
    with pytest.raises(Usage, match="expected output_mode update"):
        pipeline(tmp_path, INTO_TOPIC, guarantee="at_least_once", **{**settings, "mode": "append"}).start(spark)
    endless = pipeline(tmp_path, INTO_TOPIC, guarantee="at_least_once", **settings)
    assert_labelled(endless, spark, "trigger real_time")
    for run in range(2):
        for number in range(run * 30, run * 30 + 30):
            send(into["bootstrap"], incoming, value=b"%d" % number)
        query = endless.start(spark)
        await_that(lambda run=run: set(shown(into)) >= set(range(run * 30 + 30)), query)  # type: ignore[misc]
        query.stop()
    assert set(shown(into)) == set(range(60))


def test_continuous_comes_into_a_table_of_the_session_and_real_time_does_not(spark: SparkSession, tmp_path: Path) -> None:
    sink = 'topic: {{type: kafka, bootstrap: "{bootstrap}", topic: {topic}, value: json}}'
    text = INTO_TOPIC.replace(sink, "seen: {{type: memory}}")
    with pytest.raises(Usage, match="expected a sink of type console or kafka, found memory"):
        pipeline(tmp_path, text, guarantee="at_least_once", **real_time("any")).start(spark)
    query = pipeline(tmp_path, text, guarantee="at_least_once", **CONTINUOUSLY).start(spark)
    await_that(lambda: spark.table("seen").count() >= 20, query)
    query.stop()
    numbers = sorted(row.n for row in spark.table("seen").collect())
    assert numbers == list(range(len(numbers)))


def assert_labelled(endless: penstock.Pipeline, spark: SparkSession, trigger: str) -> None:
    checked = endless.check(spark)
    assert checked.given is Guarantee.AT_LEAST_ONCE
    weak = {claim.subject for claim in checked.claims if claim.guarantee is Guarantee.AT_LEAST_ONCE}
    assert weak == {trigger, "sink topic (kafka)"}
    assert checked.ok, checked.findings
    explained, status = endless.explain(spark), endless.status()
    for text in (explained.path, status.text):
        assert text.startswith(f"Trigger {trigger.removeprefix('trigger ')}: a sink of Spark's own takes the rows, at least once")
    assert (explained.ledger, status.health) == ("no entries", "ok")


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
