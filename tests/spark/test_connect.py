"""Spark Connect: Penstock's own reader of Kafka, and whole pipelines, on a real server; clients are processes of their own."""

import json
import re
import shlex
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset
import pytest

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.kafka_offset import topic_offsets_in
from penstock.core.model import BatchId, Decided, PipelineName, SourceName
from penstock.ledger.open import open_ledger
from tests.architecture.reading import ROOT
from tests.crash.commandline import Ended, penstock
from tests.servers.fixtures import server
from tests.servers.server import free_port
from tests.spark.connect import ConnectServer, ended
from tests.spark.connect_doors import SEEN
from tests.spark.kafka_query import Seen, aborted, new_topic, produced
from tests.spark.page import Page
from tests.spark.test_kafka_own_reader import recreate

PAGES = ROOT / "docs" / "howto"
COMMANDS = re.findall(r"^penstock .*$", (PAGES / "connect.md").read_text(), re.MULTILINE)
[PIPELINE] = re.findall(r"^```yaml\n(.*?)^```", (PAGES / "kafka_source.md").read_text(), re.MULTILINE | re.DOTALL)

SCRIPT = """
import sys
import penstock
from pyspark.sql import SparkSession

home = Path(sys.argv[1])
rows = SparkSession.builder.getOrCreate().readStream.schema("n INT").csv(str(home / "in"))
delivery = penstock.Delivery("lines", home=home / "state", sinks={"lines": JsonLines(str(home / "lines"))})
delivery.start(rows.writeStream.trigger(availableNow=True)).awaitTermination()
"""
ENDLESS = ("penstock", "run", "kafka.yaml", "--set", "trigger={processing_time: 200ms}")


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    pytest.importorskip("grpc_status", reason="a client of Spark Connect needs penstock[connect]")
    with ConnectServer(tmp_path_factory.mktemp("connect")).running() as running:
        yield running


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the page's pipeline, on a topic, into the working directory."""

    def written(topic: str) -> None:
        text = PIPELINE.replace("subscribe: orders", f"subscribe: {topic}").replace("PerTrigger: 100000", "PerTrigger: 30")
        (tmp_path / "kafka.yaml").write_text(re.sub(r"^ *mirror_offsets_to:.*\n", "", text, flags=re.MULTILINE))

    monkeypatch.setenv("KAFKA", server("kafka").bootstrap)
    monkeypatch.chdir(tmp_path)
    return written


def test_the_reader_goes_on_where_its_checkpoint_stands(connect: ConnectServer, tmp_path: Path) -> None:
    topic, table, checkpoint = new_topic(2), tmp_path / "table", tmp_path / "checkpoint"
    options = {"kafka.bootstrap.servers": server("kafka").bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    source = json.dumps({"format": "kafka", "reader": "auto", "options": {**options, "maxOffsetsPerTrigger": 30}})
    expected: Counter[Seen] = Counter()
    ends: list[dict[int, int]] = []
    for numbers, in_vain, more in ((range(60), range(20), (15, 30, 41)), (range(60, 100), range(10), (56, 67))):
        expected += produced(topic, numbers, partitions=2)
        aborted(topic, in_vain, partitions=2)
        told = connect.run("tests.spark.connect", source, str(table), str(checkpoint))
        assert told.code == 0, told
        rows = pyarrow.dataset.dataset(table, exclude_invalid_files=True).to_table().to_pylist()
        assert Counter((row["value"], row["partition"]) for row in rows) == expected
        ends += [{0: end, 1: end} for end in more]
        assert positions(checkpoint, topic) == ends


def positions(checkpoint: Path, topic: str) -> list[dict[int, int]]:
    found = SparkCheckpoint(checkpoint)
    newest = found.latest_offsets_id()
    assert newest is not None
    batches = [found.batch(BatchId(number), [SourceName("s")]) for number in range(newest + 1)]
    return [dict(topic_offsets_in(batch.offsets[0].end)[topic]) for batch in batches]


def test_a_pipeline_delivers_once_whatever_becomes_of_its_client(
    connect: ConnectServer, pipeline: Callable[[str], None], tmp_path: Path
) -> None:
    """The query of a client that was killed goes on at the server; the next start takes the pipeline over."""
    topic = new_topic(2)
    pipeline(topic)
    expected = produced(topic, range(100), partitions=2)
    with connect.started(*ENDLESS, until=lambda: decided(tmp_path) >= 2) as killed:
        killed.kill()
    expected += produced(topic, range(100, 150), partitions=2)
    told = connect.penstock("penstock run kafka.yaml --available-now")
    assert told.code == 0, told
    assert told.last["rows_in"] == told.last["sinks"]["lake"]["rows"] == told.last["sinks"]["table"]["rows"] <= 90
    verified = penstock("verify", "kafka.yaml")
    assert verified.code == 0, verified
    assert in_lake(tmp_path) == in_table(tmp_path) == expected


def test_a_stop_ends_the_query_at_the_server_and_the_page_goes_on_until_its_topic_is_another(
    connect: ConnectServer, pipeline: Callable[[str], None], tmp_path: Path
) -> None:
    topic = new_topic(2)
    pipeline(topic)
    expected = produced(topic, range(20), partitions=2)
    with connect.started(*ENDLESS, until=lambda: decided(tmp_path) == 1) as running:
        running.terminate()
        stopped = ended(running)
    assert (stopped.code, stopped.last["batches"], stopped.last["rows_in"]) == (0, 1, 20), stopped
    expected += produced(topic, range(20, 30), partitions=2)
    check, again = map(connect.penstock, COMMANDS[:2])
    verify = penstock(*shlex.split(COMMANDS[2])[1:])
    assert (check.code, verify.code) == (0, 0), (check, verify)
    assert (again.code, again.last["batches"], again.last["rows_in"]) == (0, 1, 10), again
    assert in_lake(tmp_path) == in_table(tmp_path) == expected
    recreate(topic, 3)
    told = connect.penstock("penstock run kafka.yaml")
    assert_told(told, 3, r"Topic '.*' was deleted and created again")


def test_a_drop_in_is_refused_by_the_client_for_what_a_pipeline_file_is(connect: ConnectServer) -> None:
    """The table of doors once more: here the query is read from the client's messages and the server's plan."""
    told = connect.run("tests.spark.connect_doors", str(free_port()))
    assert told.code == 0, told
    found = json.loads(told.out.splitlines()[-1])
    assert found.keys() == SEEN.keys()
    for name, case in SEEN.items():
        kind, message, left = found[name]
        assert (kind, left) == (case.refused.__name__, ["in", "lake"]), (name, message)
        assert re.search(case.says, message), (name, message)


def test_a_sink_of_a_script_travels_to_the_server_as_an_object(
    connect: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class is in the script itself, which is nowhere on the server's path."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1\n2\n")
    (tmp_path / "script_of_a_client.py").write_text(Page("own_sink").blocks("python")[0] + SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for _ in range(2):
        told = connect.run("script_of_a_client", str(tmp_path))
        assert told.code == 0, told
    assert [file.read_text() for file in (tmp_path / "lines").glob("*.jsonl")] == ['{"n":1}\n{"n":2}\n']


def test_an_error_at_the_server_is_one_sentence(connect: ConnectServer, pipeline: Callable[[str], None], tmp_path: Path) -> None:
    topic = new_topic()
    pipeline(topic)
    produced(topic, range(20))
    text = (tmp_path / "kafka.yaml").read_text()
    (tmp_path / "kafka.yaml").write_text(text.replace("CAST(key AS STRING)", "CAST(CAST(key AS STRING) AS INT)"))
    assert_told(connect.penstock("penstock run kafka.yaml"), 1, r"cannot be cast to \"INT\"")


def test_a_server_without_penstock_is_told(pipeline: Callable[[str], None], tmp_path: Path) -> None:
    topic, shadow = new_topic(), tmp_path / "shadows" / "penstock"
    pipeline(topic)
    produced(topic, range(20))
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("""raise ModuleNotFoundError("No module named 'penstock'")""")
    with ConnectServer(tmp_path, shadows=shadow.parent).running() as without:
        assert_told(without.penstock("penstock run kafka.yaml"), 1, "Penstock is not installed where Spark's driver runs")
        text = (tmp_path / "kafka.yaml").read_text().replace("format: kafka", "format: rate-micro-batch")
        text = re.sub(r"    reader: .*\n(.*\n)*transform:\n.*\n", "    options: {rowsPerBatch: 5}\n", text)
        (tmp_path / "kafka.yaml").write_text(text)
        assert_told(without.penstock("penstock run kafka.yaml"), 1, "Penstock is not installed where Spark runs Python")


def test_a_server_that_is_not_there_and_what_none_can_do_are_told_at_once(
    connect: ConnectServer, pipeline: Callable[[str], None], tmp_path: Path
) -> None:
    pipeline("any")
    assert_told(connect.penstock("penstock run kafka.yaml --batches 1"), 2, "cannot be told to stop after 1 batches")
    nowhere = ConnectServer(tmp_path)
    nowhere.port = free_port()
    told = nowhere.penstock("penstock run kafka.yaml")
    assert_told(told, 75, rf"No server of Spark Connect answers at sc://127\.0\.0\.1:{nowhere.port}")


def assert_told(told: Ended, code: int, said: str) -> None:
    assert told.code == code, told
    assert re.search(said, told.err), told
    assert "Traceback" not in told.err
    assert "JVM" not in told.err
    assert len(told.err.splitlines()) <= 3, told


def decided(directory: Path) -> int:
    """How many batches."""
    path = directory / "state" / "orders" / "ledger.db"
    if not path.exists():
        return 0
    ledger = open_ledger(f"sqlite:///{path}", pipeline=PipelineName("orders"), options={})
    try:
        return sum(isinstance(entry.body, Decided) for entry in ledger.newest_first())
    finally:
        ledger.close()


def in_lake(directory: Path) -> "Counter[Seen]":
    rows = pyarrow.dataset.dataset(directory / "lake").to_table().to_pylist()
    return Counter((row["value"].encode(), row["partition"]) for row in rows)


def in_table(directory: Path) -> "Counter[Seen]":
    with sqlite3.connect(directory / "orders.db") as database:
        return Counter((value.encode(), number) for value, number in database.execute("SELECT value, partition FROM orders"))
