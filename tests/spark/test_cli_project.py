"""What `penstock init` makes is checked, run, killed, run again and verified from the command line, as its README says."""

import csv
import json
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable

from tests.servers.fixtures import server, unique
from tests.spark.page import run, run_beside

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

FEW_CORES = ("--set", "spark.master=local[2]")
EVERY_SECOND = ("--set", "trigger={processing_time: 1s}")


def penstock(project: Path, *words: str, code: int = 0, faults: str = "") -> list[dict[str, Any]]:
    """Run a verb with --json, with faults in a process of its own; its output, an object per line."""
    command = shlex.join(["penstock", words[0], "pipeline.yaml", *words[1:], "--json"])
    done = run(project, command, faults=faults) if faults else run_beside(project, command)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def made(directory: Path, template: str) -> Path:
    subprocess.run([sys.executable, "-m", "penstock", "init", "shop", "--template", template], cwd=directory, check=True)
    return directory / "shop"


def incoming(project: Path) -> Counter[tuple[str, ...]]:
    rows = (row for file in (project / "incoming").glob("orders-*.csv") for row in csv.DictReader(file.read_text().splitlines()))
    return Counter((row["order_id"], row["region"], row["article"], row["quantity"], row["price"]) for row in rows)


def in_accounts(project: Path) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for account in ("europe", "america", "asia"):
        for file in (project / "lake" / account).rglob("*.parquet"):
            rows = pq.ParquetFile(file).read(["order_id", "region", "article", "quantity", "price"]).to_pylist()
            assert all(row["region"] == account for row in rows)
            found.update(tuple(str(value) for value in row.values()) for row in rows)
    return found


def in_sqlite(project: Path) -> Counter[tuple[str, ...]]:
    connection = sqlite3.connect(project / "warehouse.db")
    try:
        rows = connection.execute("SELECT order_id, region, article, quantity, price FROM orders").fetchall()
    finally:
        connection.close()
    return Counter(tuple(str(value) for value in row) for row in rows)


def test_the_files_project(tmp_path: Path) -> None:
    project = made(tmp_path, "files")
    subprocess.run([sys.executable, "generate.py", "4", "200"], cwd=project, capture_output=True, check=True)
    (checked,) = penstock(project, "check", *FEW_CORES)
    assert (checked["ok"], checked["given"]) == (True, "exactly_once")
    (explained,) = penstock(project, "explain", *FEW_CORES)
    assert explained["scans"] == {"orders": 1}

    penstock(project, "run", *FEW_CORES, code=-signal.SIGKILL, faults="sqlite.commit=kill@2")
    *batches, summary = penstock(project, "run", *FEW_CORES)
    assert summary["recovered"] or any(batch["already"] for batch in batches)
    assert in_accounts(project) == in_sqlite(project) == incoming(project)
    (verified,) = penstock(project, "verify")
    assert verified["ok"]
    assert {name: sink["rows_found"] for name, sink in verified["sinks"].items()} == {"lake": 800, "warehouse": 800}
    (status,) = penstock(project, "status")
    assert (status["health"], status["last_batch_id"]) == ("ok", 1)
    (history,) = penstock(project, "history")
    assert sum(row["rows_in"] for row in history) == 800

    for name in ("1", ".1.crc"):
        (project / "state" / "checkpoint" / "commits" / name).unlink()
    batch, summary = penstock(project, "run", *FEW_CORES)
    assert (batch["batch_id"], batch["already"], summary["batches"], summary["rows_in"]) == (1, True, 0, 0)
    assert in_accounts(project) == in_sqlite(project) == incoming(project)

    next((project / "lake" / "asia").rglob("*.parquet")).unlink()
    (verified,) = penstock(project, "verify", code=5)
    assert not verified["sinks"]["lake"]["accounts"]["asia"]["ok"]
    assert verified["sinks"]["warehouse"]["ok"]


def test_the_kafka_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = made(tmp_path, "kafka")
    topic = server("kafka").topic(unique("orders"), 2)
    monkeypatch.setenv("KAFKA", server("kafka").bootstrap)
    monkeypatch.setenv("TOPIC", topic)
    generate = [sys.executable, "generate.py", "500"]
    subprocess.run(generate, cwd=project, capture_output=True, check=True)
    (checked,) = penstock(project, "check", *FEW_CORES)
    assert (checked["ok"], checked["given"]) == (True, "exactly_once")

    penstock(project, "run", *FEW_CORES, code=-signal.SIGKILL, faults="delta.commit=kill")
    penstock(project, "run", *FEW_CORES)
    assert sales(project) == sent(topic)
    subprocess.run(generate, cwd=project, capture_output=True, check=True)
    penstock(project, "run", *FEW_CORES)
    assert sales(project) == sent(topic)
    assert sum(orders for orders, _ in sales(project).values()) == 1000
    (verified,) = penstock(project, "verify")
    assert verified["ok"]
    assert list((project / "state" / "checkpoint" / "state").rglob("*.zip")), "the state is not RocksDB's"


Sales = dict[tuple[datetime, str], tuple[int, Decimal]]


def sales(project: Path) -> Sales:
    """What the table says of each minute and region: the number of orders and their total."""
    rows = pa.table(DeltaTable(str(project / "tables" / "sales")).scan()).to_pylist()
    found = {(row["minute"], row["region"]): (row["orders"], row["total"]) for row in rows}
    assert len(found) == len(rows)
    return found


def sent(topic: str) -> Sales:
    """The same, of all records in the topic."""
    found: Sales = {}
    for time_ms, value in records(topic):
        order = json.loads(value)
        minute = datetime.fromtimestamp(time_ms // 60_000 * 60, timezone.utc)
        orders, total = found.get((minute, order["region"]), (0, Decimal(0)))
        found[minute, order["region"]] = (orders + 1, total + order["quantity"] * Decimal(order["price"]))
    return found


def records(topic: str) -> Iterator[tuple[int, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": server("kafka").bootstrap, "group.id": unique("look"), "enable.partition.eof": True}
    )
    partitions = [TopicPartition(topic, number, 0) for number in range(2)]
    consumer.assign(partitions)
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            yield message.timestamp()[1], message.value()
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended += 1
    consumer.close()


def test_the_rate_project_stops_after_as_many_batches_as_it_is_told(tmp_path: Path) -> None:
    project = made(tmp_path, "rate")
    *batches, summary = penstock(project, "run", *FEW_CORES, *EVERY_SECOND, "--batches", "2")
    assert [(batch["batch_id"], batch["rows_in"]) for batch in batches] == [(0, 10_000), (1, 10_000)]
    assert (summary["batches"], summary["rows_in"], summary["last_batch_id"]) == (2, 20_000, 1)
    (verified,) = penstock(project, "verify")
    assert verified["ok"]
    assert verified["sinks"]["lake"]["rows_found"] == 20_000
    assert all(account["rows_found"] for account in verified["sinks"]["lake"]["accounts"].values())
    files = [file.name for file in (project / "lake").rglob("*.parquet")]
    assert len(files) == 2 * 3, "a file for each batch and account"


def test_verify_status_and_doctor_beside_a_run_and_a_stop_signal_that_ends_it_well(tmp_path: Path) -> None:
    project = made(tmp_path, "rate")
    command = [sys.executable, "-m", "penstock", "run", "pipeline.yaml", *FEW_CORES, *EVERY_SECOND]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline()]
        positions = []
        for _ in range(5):
            positions.append(look_beside_a_run(project))
            lines.append(running.stdout.readline())  # of a batch that was delivered since
        require_that_a_lost_row_is_found(project)
        running.send_signal(signal.SIGTERM)
        lines += running.stdout.readlines()
        assert running.wait(timeout=120) == 0
    assert positions == sorted(positions)
    assert positions[-1] > positions[0]
    *batches, summary = [json.loads(line) for line in lines]
    assert summary["batches"] == len(batches) >= 1
    (verified,) = penstock(project, "verify")
    assert verified["ok"]
    assert verified["sinks"]["warehouse"]["rows_found"] == summary["rows_in"]


def look_beside_a_run(project: Path) -> int:
    """None of the commands sees anything wrong; as of which position `verify` has compared."""
    (status,) = penstock(project, "status")
    assert status["health"] in {"ok", "replay"}, status
    penstock(project, "doctor")
    (verified,) = penstock(project, "verify")
    assert verified["ok"], verified
    return max(int(sink["as_of"]["position"]) for sink in verified["sinks"].values())


def require_that_a_lost_row_is_found(project: Path) -> None:
    with closing(sqlite3.connect(project / "warehouse.db", timeout=60)) as connection:
        row = connection.execute("SELECT * FROM ticks WHERE value = 5").fetchone()
        with connection:
            connection.execute("DELETE FROM ticks WHERE value = 5")
        (damaged,) = penstock(project, "verify", code=5)
        assert damaged["sinks"]["lake"]["ok"]
        assert "lacks 1 of the rows" in damaged["sinks"]["warehouse"]["problems"][0]["message"]
        with connection:
            connection.execute(f"INSERT INTO ticks VALUES ({', '.join('?' * len(row))})", row)


def test_more_than_can_be_given_is_refused(tmp_path: Path) -> None:
    project = made(tmp_path, "rate")
    weak = (*FEW_CORES, "--set", "trigger={continuous: 1s}")
    (checked,) = penstock(project, "check", *weak, code=3)
    assert [claim["subject"] for claim in checked["too_weak"]] == [
        "trigger continuous",
        "sink lake (parquet)",
        "sink warehouse (sqlite)",
    ]
    (refused,) = penstock(project, "run", *weak, code=3)
    assert refused["error"]["kind"] == "GuaranteeTooWeak"
