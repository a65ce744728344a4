"""The page about change streams: random changes of a table, as Debezium writes them, through a real broker into a real table."""

import json
import random
import sqlite3
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.crash.kafka_world import create
from tests.seed import SEED
from tests.servers.fixtures import server, unique
from tests.spark.page import Page, SqlitePlace, assert_told
from tests.unit.change_events import POSTGRES, avro_envelope, connect_schema, event
from tests.unit.registry_values import avro
from tests.unit.test_avro_change_events import DECIMAL, SOURCE, connect, optional
from tests.unit.test_semantic_types import DECIMAL as DECIMAL_OF_CONNECT
from tests.unit.test_semantic_types import TIME, named

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PAGE = Page("change_data")
[QUERIES] = PAGE.blocks("sql")
PARTITIONS = 3
Order = tuple[int, str | None, int, int]
"""Id, customer, hundredths of the amount, microseconds of the time."""


class Database:
    """A table that changes at random, and the records that a connector makes of it; `rows` is the replay in memory."""

    def __init__(self, topic: str) -> None:
        self.topic, self.rows, self.generator, self.lsn = topic, dict[int, Order](), random.Random(SEED), 1000
        self.count = 0

    def snapshot(self) -> "Iterator[tuple[int, dict[str, Any] | None]]":
        for row in [self._row(number) for number in range(30)]:
            self.rows[row[0]] = row
            yield row[0], self._event("r", row, snapshot="true")

    def changes(self, count: int) -> "Iterator[tuple[int, dict[str, Any] | None]]":
        """Keys and events: inserts, updates, deletes with their tombstone, and updates of the key."""
        for _ in range(count):
            number = self.generator.randrange(60)
            there = self.rows.get(number)
            if there is None:
                self.rows[number] = self._row(number)
                yield number, self._event("c", self.rows[number])
            elif self.generator.random() < 0.5:
                self.rows[number] = self._row(number)
                yield number, self._event("u", self.rows[number])
            else:
                yield from self._delete(number)
                other = self.generator.randrange(60)
                if self.generator.random() < 0.5 and other not in self.rows:
                    self.rows[other] = (other, *there[1:])
                    yield other, self._event("c", self.rows[other])

    def _delete(self, number: int) -> "Iterator[tuple[int, dict[str, Any] | None]]":
        del self.rows[number]
        gone = self._event("d", (number, None, 0, 0))
        gone["before"] |= {"amount": None, "placed": None}
        yield number, gone
        yield number, None

    def _row(self, number: int) -> Order:
        self.count += 1
        customer = None if self.count % 7 == 0 else f"customer {self.count}"
        return number, customer, self.generator.randrange(-500_000, 500_000), 1_700_000_000_000_000 + self.count

    def _event(self, op: str, row: Order, **source: Any) -> dict[str, Any]:
        self.lsn += self.generator.choice([1, 50])
        return event(op, dict(zip(COLUMNS, row, strict=True)), source={**POSTGRES, **source, "lsn": self.lsn})


COLUMNS = ("id", "customer", "amount", "placed")


def as_json(given: dict[str, Any] | None, *, with_schema: bool) -> bytes | None:
    """By Connect's converter."""
    if given is None:
        return None
    for side in ("before", "after"):
        if given[side] is not None and given[side]["amount"] is not None:
            amount = given[side]["amount"]
            given[side]["amount"] = b64encode(amount.to_bytes(4, "big", signed=True)).decode()
    types = {
        "id": "int64",
        "customer": "string",
        "amount": DECIMAL_OF_CONNECT,
        "placed": named("int64", f"{TIME}.MicroTimestamp"),
    }
    return json.dumps({"schema": connect_schema(**types), "payload": given} if with_schema else given).encode()


class ChangePlace(SqlitePlace):
    page, sink = PAGE, "copy"

    def __init__(self, directory: Path, **changes: str) -> None:
        self.topic = create(unique("shop.public.orders"), PARTITIONS)
        super().__init__(directory, environment={"KAFKA": server("kafka").bootstrap, "REGISTRY": server("registry").url})
        text = self.file.read_text()
        self.file = directory / "changes.yaml"
        for old, new in {"subscribe: shop.public.orders": f"subscribe: {self.topic}", **changes}.items():
            assert old in text
            text = text.replace(old, new)
        self.file.write_text(text)
        self.producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "log_level": 0})

    def send(self, records: "list[tuple[int, bytes | None]]") -> None:
        for number, value in records:
            self.producer.produce(self.topic, value, key=json.dumps({"id": number}).encode())
        assert self.producer.flush(60) == 0

    def copy(self) -> "Counter[tuple[Any, ...]]":
        found = self.query("SELECT id, customer, amount, placed FROM orders")
        return Counter((number, customer, Decimal(str(amount)), str(placed)) for number, customer, amount, placed in found)


def copy_of(database: Database) -> "Counter[tuple[Any, ...]]":
    connection = sqlite3.connect(":memory:")
    moment = "SELECT strftime('%Y-%m-%d %H:%M:%S', ?, 'unixepoch')"
    try:
        return Counter(
            (
                number,
                customer,
                Decimal(amount) / 100,
                f"{connection.execute(moment, (at // 10**6,)).fetchone()[0]}.{at % 10**6:06d}",
            )
            for number, customer, amount, at in database.rows.values()
        )
    finally:
        connection.close()


def test_random_changes_make_the_table_that_they_were_made_of(tmp_path: Path) -> None:
    """In batches of a few, read by more tasks than the topic has partitions; a connector that starts again repeats itself."""
    smaller = "startingOffsets: earliest\n      maxOffsetsPerTrigger: 700\n      minPartitions: 5"
    place = ChangePlace(tmp_path, **{"startingOffsets: earliest": smaller})
    database = Database(place.topic)
    print(f"PENSTOCK_SEED={SEED}")
    place.send([(number, as_json(given, with_schema=False)) for number, given in database.snapshot()])
    assert place.run("penstock run changes.yaml").returncode == 0
    assert place.copy() == copy_of(database)
    for with_schema in (False, True):
        given = [(number, as_json(one, with_schema=with_schema)) for number, one in database.changes(400)]
        place.send(given)
        place.send(given[-100:])
    place.assert_done("changes.yaml")
    assert place.copy() == copy_of(database)
    place.assert_answered(QUERIES)


def test_a_truncate_stops_the_pipeline_and_its_remedy_leaves_what_came_later(tmp_path: Path) -> None:
    place = ChangePlace(tmp_path)
    sent = [("c", 1), ("c", 2), ("t", None), ("c", 3)]
    for lsn, (op, number) in enumerate(sent):
        row = None if number is None else {"id": number, "customer": "ann", "amount": None, "placed": 0}
        place.send([(number or 0, as_json(event(op, row, source={**POSTGRES, "lsn": lsn}), with_schema=False))])
    stopped = place.run("penstock run changes.yaml")
    assert_told(stopped, 1, "the table was truncated (op t, at position 00000000000000000002)", "undecodable: quarantine")
    aside = place.file.read_text().replace("    decode:\n", "    decode:\n      undecodable: quarantine\n")
    place.file.write_text(f"{aside}quarantine: ./quarantine\n")
    assert place.run("penstock run changes.yaml").returncode == 0
    assert "truncated" in place.run("penstock quarantine list changes.yaml").stdout
    assert place.run("penstock verify changes.yaml").returncode == 0
    place.query("DELETE FROM orders WHERE position < '00000000000000000002'")
    assert place.query("SELECT id FROM orders") == [(3,)]
    assert place.run("penstock verify changes.yaml").returncode == 5


def test_changes_in_avro(tmp_path: Path) -> None:
    avro_lines = PAGE.blocks("yaml")[1]
    json_lines = PAGE.blocks("yaml")[0].partition("    decode:\n")[2].partition("transform:")[0]
    place = ChangePlace(tmp_path, **{f"    decode:\n{json_lines}": avro_lines})
    at = connect("long", f"{TIME}.MicroTimestamp")
    schema = avro_envelope(
        {"name": "id", "type": "long"}, *(optional(*one) for one in zip(COLUMNS[1:], ("string", DECIMAL, at), strict=True))
    )
    schema_id = int(server("registry").register(f"{place.topic}-value", schema))
    database = Database(place.topic)
    given = [*database.snapshot(), *database.changes(100)]
    records = list[tuple[int, bytes | None]]()
    for number, one in given:
        for side in ("before", "after") if one is not None else ():
            if one[side] is not None and one[side]["amount"] is not None:
                one[side]["amount"] = Decimal(one[side]["amount"]) / 100
        source = None if one is None else {name: one["source"][name] for name in SOURCE}
        records.append((number, None if one is None else avro(schema, {**one, "source": source}, schema_id)))
    place.send(records)
    place.assert_done("changes.yaml")
    assert place.copy() == copy_of(database)
