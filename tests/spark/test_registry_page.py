"""The page about schema registries, command by command, on a real broker and a real registry; and what happens to bad records."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from confluent_kafka import Producer

from tests.crash.commandline import Ended, penstock
from tests.crash.kafka_world import create
from tests.servers.fixtures import server, unique
from tests.servers.server import free_port
from tests.spark.page import Page
from tests.unit.registry_values import ORDER, avro, record

PAGE = Page("schema_registry")
PIPELINE = PAGE.blocks("yaml")[0]
Row = tuple[object, ...]

pytestmark = pytest.mark.usefixtures("spark", "at_home")


class Orders:
    """The page's pipeline in a directory, on a topic of its own."""

    def __init__(self, directory: Path, **changes: str) -> None:
        self.directory, self.topic = directory, create(unique("orders"), 1)
        text = PIPELINE.replace("subscribe: orders", f"subscribe: {self.topic}")
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (directory / "registry.yaml").write_text(text)
        self.offset = 0

    def register(self, schema: object, **more: Any) -> int:
        return int(server("registry").register(f"{self.topic}-value", schema, **more))

    def send(self, *values: bytes | None, key: bytes | None = None) -> None:
        producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "log_level": 0})
        for value in values:
            producer.produce(self.topic, value, key=key)
        assert producer.flush(60) == 0
        self.offset += len(values)

    def feed(self, schema: object, schema_id: int, count: int) -> "Counter[Row]":
        """Good records; the rows that they must become."""
        sent = [(number, f"customer {number}", number / 4) for number in range(self.offset, self.offset + count)]
        rows = Counter((*row, 0, self.offset + place) for place, row in enumerate(sent))
        self.send(*(avro(schema, dict(zip(("id", "customer", "amount"), row, strict=True)), schema_id) for row in sent))
        return rows

    def run(self, command: str) -> Ended:
        return penstock(*command.split()[1:])

    def rows(self) -> "Counter[Row]":
        table = pyarrow.dataset.dataset(self.directory / "lake", format="parquet").to_table()
        names = ("id", "customer", "amount", "partition", "offset")
        return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA", server("kafka").bootstrap)
    monkeypatch.setenv("REGISTRY", server("registry").url)
    monkeypatch.chdir(tmp_path)


def test_the_page_works_and_older_and_newer_records_are_read(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    older = record(*ORDER["fields"][:2], {"name": "amount", "type": "float"})
    sent = orders.feed(older, orders.register(older), 20)
    sent += orders.feed(ORDER, orders.register(ORDER), 20)
    for command in PAGE.commands:
        done = orders.run(command)
        assert done.code == 0, f"{command}\n{done}"
    assert orders.rows() == sent
    wider = record(*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None})
    sent += orders.feed(wider, orders.register(wider), 10)
    pinned = f"value: {{format: avro, subject: {orders.topic}-value, version: 2}} "
    file = tmp_path / "registry.yaml"
    file.write_text(file.read_text().replace("value: avro ", pinned))
    done = orders.run("penstock run registry.yaml --json")
    assert (done.code, done.last["rows_in"]) == (0, 10), done
    assert orders.rows() == sent


def test_a_record_that_cannot_be_decoded_fails_its_batch_until_it_can(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    sent = orders.feed(ORDER, orders.register(ORDER), 5)
    assert orders.run("penstock run registry.yaml").code == 0
    unknown = 500_000
    orders.send(avro(ORDER, {"id": 1, "customer": "x", "amount": 1.0}, unknown))
    for _ in range(2):
        failed = orders.run("penstock run registry.yaml")
        assert failed.code == 1, failed
        told = " ".join(failed.err.split())
        assert f"The value of the record at offset 5 of partition 0 of topic '{orders.topic}' (source 'orders') cannot be" in told
        assert f"decoded by the schema with id {unknown}: the registry has no such schema" in told
        assert "Traceback" not in str(failed)
    assert orders.rows() == sent


def test_a_registry_that_is_away_is_to_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Orders(tmp_path)
    sent = orders.feed(ORDER, orders.register(ORDER), 5)
    monkeypatch.setenv("REGISTRY", f"http://127.0.0.1:{free_port()}")
    away = orders.run("penstock run registry.yaml")
    assert away.code == 75, away
    assert "The schema registry http://127.0.0.1:" in away.err
    assert "does not answer: " in away.err
    monkeypatch.setenv("REGISTRY", server("registry").url)
    assert orders.run("penstock run registry.yaml").code == 0
    assert orders.rows() == sent


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (None, " does not have a subject 'orders"),
        ({"type": "record", "name": "R", "fields": [{"name": "who", "type": ["int", "string"]}]}, "Field 'who' of subject"),
    ],
)
def test_a_schema_that_is_no_good_is_refused_before_the_start(tmp_path: Path, schema: object, told: str) -> None:
    orders = Orders(tmp_path)
    orders.send(b"x")
    if schema is not None:
        orders.register(schema)
    for verb in ("check", "run"):
        refused = orders.run(f"penstock {verb} registry.yaml")
        assert refused.code == 2, refused
        assert told in refused.err


def test_keys_are_decoded_and_tombstones_are_null(tmp_path: Path) -> None:
    query = "SELECT key, value.customer AS customer, value IS NULL AS gone FROM orders"
    orders = Orders(
        tmp_path, **{"value: avro ": "value: avro\n      key: avro ", "SELECT value.*, partition, offset FROM orders": query}
    )
    keys = int(server("registry").register(f"{orders.topic}-key", "long"))
    schema_id = orders.register(ORDER)
    orders.send(avro(ORDER, {"id": 1, "customer": "ann", "amount": 1.0}, schema_id), None, key=avro("long", 7, keys))
    done = orders.run("penstock run registry.yaml --json")
    assert done.code == 0, done
    table = pyarrow.dataset.dataset(tmp_path / "lake", format="parquet").to_table()
    assert sorted(map(json.dumps, table.to_pylist())) == [
        '{"key": 7, "customer": "ann", "gone": false}',
        '{"key": 7, "customer": null, "gone": true}',
    ]
