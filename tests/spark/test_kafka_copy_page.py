"""The page about Kafka, from one topic into another and into topics beside tables: command by command, as it stands there."""

import json
import os
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.architecture.reading import ROOT
from tests.crash.kafka_world import kafka_jars
from tests.servers.fixtures import server, unique
from tests.servers.kafka import ends_of, is_open, records
from tests.spark.page import write_changes
from tests.spark.test_kafka_sink_page import Place
from tests.spark.test_readme import feed, lake

pytestmark = pytest.mark.usefixtures("spark")

TEXT = (ROOT / "docs" / "howto" / "kafka.md").read_text()
KEYS = 7


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def pipeline_of(text: str) -> str:
    return re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]


class Copy(Place):
    """The page's pipeline between two topics of this test's own; `sent`: what must come out, for each key in its order."""

    file = "copy.yaml"
    page = section("From Kafka to Kafka")
    commands = tuple(line.split("#")[0] for line in re.findall(r"^penstock .*$", page, re.MULTILINE))

    def __init__(self, directory: Path, *, partitions: int = 3, running: Any = None, **changes: str) -> None:
        self.directory, self.running, self.partitions = directory, running or server("kafka"), partitions
        self.source, self.topic = (
            self.running.topic(unique(name), partitions, retention_ms="-1", retention_bytes="-1") for name in ("orders", "clean")
        )
        text = pipeline_of(self.page).replace("subscribe: orders", f"subscribe: {self.source}")
        text = text.replace("topic: orders-clean", f"topic: {self.topic}").replace("orders-copy", self.topic)
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (directory / self.file).write_text(text.replace("penstock-orders", f"group-{self.source}"))
        self.environment = {**os.environ, **kafka_jars(directory / "jars"), "KAFKA_SERVERS": self.running.bootstrap}
        self.sent: dict[bytes, list[tuple[bytes, Any]]] = {f"key {number}".encode(): [] for number in range(KEYS)}
        self._number = 0

    def feed(self, count: int) -> None:
        """Records without a transaction, of one that is committed and of one that is aborted: these must not come out."""
        for transaction, counts in ((None, True), (False, False), (True, True)):
            self._feed(count, commit=transaction, counts=counts)

    def _feed(self, count: int, *, commit: bool | None, counts: bool) -> None:
        named = {} if commit is None else {"transactional.id": unique("feeder")}
        producer = Producer({"bootstrap.servers": self.running.bootstrap, "log_level": 0, "enable.idempotence": True, **named})
        if commit is not None:
            producer.init_transactions(60)
            producer.begin_transaction()
        for number in range(self._number, self._number + count):
            key, value, headers = f"key {number % KEYS}".encode(), f"value {number}".encode(), [("number", str(number).encode())]
            producer.produce(self.source, value, key=key, headers=headers)
            if counts:
                self.sent[key].append((value, headers))
        self._number += count
        assert producer.flush(60) == 0
        if commit is not None:
            _ = producer.commit_transaction(60) if commit else producer.abort_transaction(60)

    def found(self) -> dict[bytes, list[tuple[bytes, Any]]]:
        """What is committed, for each key in the order of its partition."""
        found: dict[bytes, list[tuple[bytes, Any]]] = {key: [] for key in self.sent}
        for message in records(self.running.bootstrap, self.topic):
            found[message.key()].append((message.value(), message.headers()))
        return found

    def assert_exact(self) -> None:
        """Every record once, each key's in its order; the ledger has the source's ends; nobody waits for a transaction."""
        assert self.found() == self.sent
        decided = [row for row in self.json("penstock history copy.yaml --json") if row["batch_id"] is not None]
        assert json.loads(decided[0]["offsets"][0]["end"]) == {self.source: self._ends()}
        diagnosis = self.json("penstock doctor copy.yaml --json")
        assert diagnosis["transactions"] == []
        assert not any(is_open(self.running.bootstrap, self.topic, number) for number in range(self.partitions))
        assert self.json("penstock verify copy.yaml --json")["ok"] is True

    def json(self, command: str) -> Any:
        done = self.run(command)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def _ends(self) -> dict[str, int]:
        return {str(number): ends_of(self.running.bootstrap, self.source, number)[0] for number in range(self.partitions)}


def test_the_page_works_and_a_killed_copy_is_finished_by_the_next(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.feed(50)
    assert copy.run("penstock run copy.yaml", faults="kafka.commit=kill", forked=True).returncode != 0
    for command in copy.commands:
        done = copy.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    copy.assert_exact()


class Beside(Place):
    file, pipeline, name = "all.yaml", pipeline_of(section("Beside tables")), "flights-everywhere"


def test_the_page_works_beside_tables(tmp_path: Path) -> None:
    """From one pass: the rows into files and a table, and JSON of them into a topic."""
    place, sent = Beside(tmp_path, partitions=2), feed(tmp_path / "incoming")
    assert place.run("penstock run all.yaml", faults="kafka.commit=kill", forked=True).returncode != 0
    for command in ("check", "run", "verify", "explain"):
        done = place.run(f"penstock {command} all.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "incoming" / "more.csv").write_text("id,origin,month,delay\n900,EWR,1,0.5\n")
    sent[900, "EWR", 1, 0.5] += 1
    for command in ("run", "verify"):
        done = place.run(f"penstock {command} all.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    assert place.rows() == sent
    assert lake(tmp_path / "lake") == sent
    with closing(sqlite3.connect(tmp_path / "flights.db")) as connection:
        assert Counter(connection.execute("SELECT id, origin, month, delay FROM flights")) == sent


def test_a_column_that_is_not_there_is_told_before_the_start(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    text = (tmp_path / "copy.yaml").read_text()
    (tmp_path / "copy.yaml").write_text(text.replace(f"topic: {copy.topic}", f"topic: {copy.topic}, key: nobody, value: json"))
    for command in ("check", "run"):
        done = copy.run(f"penstock {command} copy.yaml")
        assert done.returncode == 2, done.stdout + done.stderr
        assert "takes a column 'nobody' for its records, and the rows have key, value, headers" in done.stderr


class Changes(Place):
    """The page's pipeline of changes."""

    file, name = "changes.yaml", "gates-kafka"
    page = section("Rows that delete")
    pipeline = pipeline_of(page).replace("topic: gates", "topic: flights")


def test_rows_that_delete_become_tombstones(tmp_path: Path) -> None:
    place = Changes(tmp_path)
    write_changes(tmp_path, (tmp_path / "changes.yaml").read_text())
    for command in re.findall(r"^penstock .*$", place.page, re.MULTILINE):
        done = place.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    found = [(message.key(), message.value()) for message in records(place.running.bootstrap, place.topic)]
    assert Counter(key for key, value in found if value is None) == Counter([b"2", b"7", b"3"])
    newest = {key: json.loads(value) for key, value in found if value is not None and dict(found)[key] is not None}
    assert newest == {b"1": {"gate": "A9", "at": 15}, b"3": {"gate": "C4", "at": 35}}
    assert len(found) == 8
