"""Records that cannot be decoded, in a real query on a real broker: in the quarantine with their batch, and nowhere else."""

import json
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from penstock.registry.wire import framed
from penstock.run.batch_stager import BatchStager
from tests.crash.test_kafka_gaps import delete_records
from tests.servers.fixtures import server, unique
from tests.spark.test_registry_page import PAGE, Orders, at_home
from tests.unit.registry_values import ORDER, avro, record

pytestmark = pytest.mark.usefixtures("spark", at_home.__name__)

ASIDE = {line.split(":")[0].strip(): line for line in PAGE.blocks("yaml")[1].splitlines()}
"""The page's own lines, by their key."""
UNKNOWN = 800_000


def put_aside(directory: Path, *, limits: str = "", **changes: str) -> Orders:
    """The page's pipeline with the lines that the page adds to it."""
    return Orders(
        directory,
        **{
            "      value: avro ": f"{ASIDE['undecodable']}\n      value: avro ",
            "trigger:": f"{limits or ASIDE['quarantine']}\ntrigger:",
            **changes,
        },
    )


def counted(directory: Path) -> Orders:
    """The same, with a table of how many orders each customer has in place of the orders themselves."""
    return put_aside(
        directory,
        **{
            "SELECT value.*, partition, offset FROM orders": "SELECT value.customer AS customer, count(*) AS orders FROM orders "
            "GROUP BY value.customer",
            "  lake: {type: parquet, accounts: {all: ./lake}}\n": "",
            "table: orders}": "table: orders, write: replace}\noutput_mode: complete",
        },
    )


def held(directory: Path) -> "Counter[tuple[object, ...]]":
    """What a reader finds who lists the quarantine."""
    files = list((directory / "quarantine").rglob("*.parquet"))
    rows = pyarrow.dataset.dataset(files, format="parquet").to_table().to_pylist() if files else []
    return Counter((row["topic"], row["partition"], row["offset"], row["key"], row["value"], row["schema_id"]) for row in rows)


def run(orders: Orders, *, code: int = 0) -> Any:
    done = orders.run("penstock run registry.yaml --json")
    assert done.code == code, done
    return done


@pytest.mark.parametrize("reader", ["spark", "python"])
def test_bad_records_are_in_quarantine_with_their_batch_and_the_rest_is_delivered(tmp_path: Path, reader: str) -> None:
    orders = put_aside(tmp_path, **{"    format: kafka": f"    format: kafka\n    reader: {reader}"})
    schema_id = orders.register(ORDER)
    sent, bad = orders.feed(ORDER, schema_id, 5), Counter[tuple[object, ...]]()
    for _ in range(2):
        first = orders.offset
        values = [b"plain", framed(UNKNOWN, b"x"), avro(ORDER, {"id": 1, "customer": "x", "amount": 1.0}, schema_id)[:-1], b""]
        ids = [None, UNKNOWN, schema_id, None]
        orders.send(*values, key=b"k")
        bad += Counter((orders.topic, 0, first + at, b"k", value, ids[at]) for at, value in enumerate(values))
        sent += orders.feed(ORDER, schema_id, 5)
        last = run(orders).last
        assert last["sinks"]["quarantine"]["rows"] == 4
        assert (orders.rows(), held(tmp_path)) == (sent, bad)
    verified = orders.run("penstock verify registry.yaml --json")
    assert verified.code == 0, verified
    assert json.loads(verified.out)["sinks"]["quarantine"]["rows_found"] == 8
    [decided] = json.loads(orders.run("penstock history registry.yaml --batch 0 --json").out)
    assert (decided["rows_in"], decided["sinks"]["quarantine"]["rows"], decided["sinks"]["lake"]["rows"]) == (10, 4, 10)
    checked = orders.run("penstock check registry.yaml")
    assert checked.code == 0, checked
    assert "sink quarantine" in checked.out
    (next((tmp_path / "quarantine").rglob("*.parquet"))).unlink()
    assert orders.run("penstock verify registry.yaml").code == 5


def test_a_batch_of_bad_records_alone_and_one_without_any(tmp_path: Path) -> None:
    orders = put_aside(tmp_path)
    schema_id = orders.register(ORDER)
    orders.send(b"plain")
    assert run(orders).last["sinks"]["quarantine"]["rows"] == 1
    sent = orders.feed(ORDER, schema_id, 3)
    assert run(orders).last["sinks"]["quarantine"]["rows"] == 0
    assert (orders.rows(), held(tmp_path).total()) == (sent, 1)


def test_headers_and_partitions_that_were_added_come_along(tmp_path: Path) -> None:
    orders = put_aside(tmp_path)
    sent = orders.feed(ORDER, orders.register(ORDER), 1)
    run(orders)
    server("kafka").admin().create_partitions([NewPartitions(orders.topic, 2)])[orders.topic].result(60)
    server("kafka").await_led(orders.topic, 2)
    producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "log_level": 0})
    producer.produce(orders.topic, b"first of the new one", partition=1, headers={"trace": b"\1"})
    assert producer.flush(60) == 0
    run(orders)
    assert (orders.rows(), held(tmp_path)) == (sent, Counter({(orders.topic, 1, 0, None, b"first of the new one", None): 1}))
    [row] = pyarrow.dataset.dataset(list((tmp_path / "quarantine").rglob("*.parquet"))).to_table().to_pylist()
    assert (row["headers"], row["source"], row["undecodable"]) == ([{"key": "trace", "value": b"\1"}], "orders", "value")


@pytest.mark.parametrize("limit", ["max_rows: 2", "max_share: 0.3"])
def test_too_many_of_them_fail_the_batch(tmp_path: Path, limit: str) -> None:
    orders = put_aside(tmp_path, limits=f"quarantine: {{url: ./quarantine, {limit}}}")
    sent = orders.feed(ORDER, orders.register(ORDER), 4)
    orders.send(b"plain", b"plain", b"plain")
    failed = run(orders, code=1)
    told = " ".join(failed.out.split())
    assert f"cannot be decoded; `quarantine: {{{limit}}}` allows fewer. The first is at offset 4 of partition 0" in told
    assert held(tmp_path).total() == 0
    file = tmp_path / "registry.yaml"
    file.write_text(file.read_text().replace(limit, limit.replace("2", "20").replace("0.3", "0.9")))
    run(orders)
    assert (orders.rows(), held(tmp_path).total()) == (sent, 3)


def test_it_goes_around_an_aggregation_that_sends_its_whole_result(tmp_path: Path) -> None:
    orders = counted(tmp_path)
    schema_id = orders.register(ORDER)
    for times in (1, 2):
        orders.send(b"plain", *(avro(ORDER, {"id": 1, "customer": "ann", "amount": 1.0}, schema_id) for _ in range(3)))
        run(orders)
        assert held(tmp_path).total() == times
    import sqlite3

    with sqlite3.connect(tmp_path / "orders.db") as connection:
        assert connection.execute("SELECT customer, orders FROM orders").fetchall() == [("ann", 6)]
    connection.close()


def test_a_decided_batch_whose_records_became_good_does_not_enter_the_state(tmp_path: Path) -> None:
    """Its rows are delivered; Spark computes it again for the state alone, since it never noted its end."""
    orders = counted(tmp_path)
    orders.register(ORDER)
    last = server("registry").register(unique("other"), record(name=unique("Other")))
    wider = record(*ORDER["fields"], {"name": unique("note"), "type": ["null", "string"], "default": None})
    orders.send(avro(wider, {"id": 1, "customer": "ann", "amount": 1.0}, last + 1))
    run(orders)
    for name in ("0", ".0.crc"):
        (tmp_path / "state/orders/checkpoint/commits" / name).unlink()
    assert orders.register(wider) == last + 1
    refused = run(orders, code=1)
    assert "was decided with 1 records in quarantine, and now 0 of it cannot be decoded" in " ".join(refused.out.split())


def test_what_is_in_quarantine_is_listed_and_shown(tmp_path: Path) -> None:
    orders = put_aside(tmp_path)
    assert "The quarantine is empty." in orders.run("penstock quarantine list registry.yaml").out
    orders.register(ORDER)
    for value in (b"plain", framed(UNKNOWN, bytes(range(40)))):
        orders.send(value, key=b"k")
        run(orders)
    listed = orders.run("penstock quarantine list registry.yaml --json")
    assert listed.code == 0, listed
    [first, second] = json.loads(listed.out)
    assert (first["topic"], first["offset"], first["value"], first["schema_id"]) == (orders.topic, 0, "cGxhaW4=", None)
    assert (second["offset"], second["key"], second["schema_id"]) == (1, "aw==", UNKNOWN)
    assert json.loads(orders.run("penstock quarantine list registry.yaml --batch 1 --json").out) == [second]
    shown = orders.run("penstock quarantine show registry.yaml --partition 0 --offset 1")
    assert "00000000  00 00 0c 35 00 00 01 02 03 04 05 06 07 08 09 0a  ...5............" in shown.out, shown
    assert "the registry has no such schema" in shown.out
    missing = orders.run("penstock quarantine show registry.yaml --partition 0 --offset 7")
    assert missing.code == 1
    assert "holds no record with offset 7 of partition 0" in missing.err


RULES = (
    '    expect: {amount: {sql: "value.amount >= 0", on_violation: quarantine}, '
    "known: {sql: \"value.customer IS NOT NULL AND value.customer <> 'nobody'\", on_violation: drop}}\n    decode:"
)


def test_rules_see_decoded_values_and_the_quarantine_has_the_bytes_of_the_broker(tmp_path: Path) -> None:
    """Beside records that cannot be decoded; a query with state computes its batch again from the rows that met the rules."""
    orders = counted(tmp_path)
    file = tmp_path / "registry.yaml"
    file.write_text(file.read_text().replace("    decode:", RULES, 1))
    schema_id = orders.register(ORDER)
    values = [
        avro(ORDER, {"id": number, "customer": customer, "amount": amount}, schema_id)
        for number, (customer, amount) in enumerate([("ann", 1.0), ("ann", -1.0), ("nobody", 2.0), ("bob", 3.0)])
    ]
    orders.send(*values, b"plain", key=b"k")
    last = run(orders).last
    assert (last["sinks"]["quarantine"]["rows"], last["dropped"]) == (2, {"orders": {"known": 1}})
    assert held(tmp_path) == Counter([
        (orders.topic, 0, 1, b"k", values[1], None),
        (orders.topic, 0, 4, b"k", b"plain", None),
    ])  # fmt: skip
    [rule] = json.loads(orders.run("penstock quarantine list registry.yaml --json").out)[:1]
    assert (rule["rule"], rule["offset"]) == ("amount", 1)
    assert json.loads(rule["row"])["value"] == {"id": 1, "customer": "ann", "amount": -1.0}
    for name in ("0", ".0.crc"):
        (tmp_path / "state/orders/checkpoint/commits" / name).unlink()
    assert run(orders).last["batches"] == 0
    import sqlite3

    with sqlite3.connect(tmp_path / "orders.db") as connection:
        assert Counter(connection.execute("SELECT customer, orders FROM orders")) == Counter([("ann", 1), ("bob", 1)])
    connection.close()


def test_a_schema_that_becomes_known_between_two_reads_of_a_batch_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read for the rules passes over the record, and the query drops it by a rule: then nothing would count it."""
    named = "SELECT value.id, value.customer, value.amount, partition, offset FROM orders"
    orders = put_aside(tmp_path, **{"SELECT value.*, partition, offset FROM orders": named})
    file = tmp_path / "registry.yaml"
    file.write_text(file.read_text().replace("    decode:", RULES, 1))
    orders.register(ORDER)
    last = server("registry").register(unique("other"), record(name=unique("Other")))
    wider = record(*ORDER["fields"], {"name": unique("note"), "type": ["null", "string"], "default": None})
    orders.send(avro(wider, {"id": 1, "customer": "nobody", "amount": 1.0}, last + 1))
    found = BatchStager._violations

    def registered_after(*given: Any) -> Any:
        violations = found(*given)
        assert orders.register(wider) == last + 1
        return violations

    with monkeypatch.context() as patched:
        patched.setattr(BatchStager, "_violations", registered_after)
        assert "knows the schema with id" in " ".join(run(orders, code=75).out.split())
    assert run(orders).last["dropped"] == {"orders": {"known": 1}}


def test_a_record_is_replayed_when_its_schema_is_known(tmp_path: Path) -> None:
    """By its bytes: the topic need not have it any more. One that still cannot be decoded stays."""
    orders = put_aside(tmp_path)
    sent = orders.feed(ORDER, orders.register(ORDER), 3)
    upcoming = server("registry").register(unique("last"), ORDER | {"name": unique("Last")}) + 1
    sent[(77, "late", 0.5, 0, orders.offset)] += 1
    orders.send(avro(ORDER, {"id": 77, "customer": "late", "amount": 0.5}, upcoming), b"plain", key=b"k")
    run(orders)
    assert held(tmp_path).total() == 2
    assert server("registry").register(unique("next"), ORDER | {"doc": unique("next")}) == upcoming
    delete_records(orders.topic, {0: orders.offset})
    replayed = orders.run("penstock quarantine replay registry.yaml --reason undecodable --yes --json")
    assert replayed.code == 0, replayed
    assert (replayed.last["records"], replayed.last["rows_out"], replayed.last["refused"]) == (2, 1, 1)
    assert orders.rows() == sent
    sent += orders.feed(ORDER, orders.register(ORDER), 2)
    run(orders)
    assert orders.rows() == sent
    [waiting] = [
        one for one in json.loads(orders.run("penstock quarantine list registry.yaml --json").out) if not one["replayed"]
    ]
    assert (waiting["value"], waiting["history"][0]["batch"]) == (b64encode(b"plain").decode(), 0)
    assert orders.run("penstock verify registry.yaml").code == 0
