"""Savepoints and lost checkpoints of real pipelines, by their commands: what is delivered afterwards is exact."""

import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.crash.commandline import penstock
from tests.servers.fixtures import server
from tests.spark.kafka_query import new_topic

pytestmark = pytest.mark.usefixtures("spark")

ORDERS = """\
pipeline: {name}
home: ./{name}
sources:
  orders: {{format: csv, path: ./in, schema: "n INT", options: {{maxFilesPerTrigger: 1}}}}
sinks:
  table: {{type: sqlite, url: "sqlite:///{name}.db", table: orders, create: true}}
trigger: {{available_now: true}}
"""


def put(directory: Path, *numbers: int) -> None:
    (directory / "in").mkdir(exist_ok=True)
    for number in numbers:
        hidden = directory / "in" / f".{number}.csv"
        hidden.write_text(f"{number}\n{number}\n")
        hidden.rename(directory / "in" / f"{number}.csv")


def pipeline(directory: Path, name: str) -> str:
    (directory / f"{name}.yaml").write_text(ORDERS.format(name=name))
    return f"{name}.yaml"


def run(directory: Path, file: str) -> None:
    done = penstock("run", file, "--json", directory=directory)
    assert done.code == 0, str(done)


def table(directory: Path, name: str) -> "Counter[int]":
    with sqlite3.connect(directory / f"{name}.db") as connection:
        return Counter(number for (number,) in connection.execute("SELECT n FROM orders"))


def twice(*numbers: int) -> "Counter[int]":
    return Counter([*numbers, *numbers])


def test_a_second_pipeline_goes_on_from_a_savepoint(tmp_path: Path) -> None:
    orders = pipeline(tmp_path, "orders")
    put(tmp_path, 1, 2, 3)
    run(tmp_path, orders)
    made = penstock("savepoint", "create", orders, "first", "--json", directory=tmp_path)
    assert (made.code, made.last["batch_id"], made.last["sinks"]["table"][""]["rows"]) == (0, 2, 6), str(made)
    put(tmp_path, 4, 5)
    run(tmp_path, orders)
    second = penstock("savepoint", "create", orders, "second", "--json", directory=tmp_path)
    assert 0 < second.last["new_files"] < second.last["files"], str(second)
    listed = json.loads(penstock("savepoint", "list", orders, "--json", directory=tmp_path).out)
    assert [(one["name"], one["batch_id"]) for one in listed] == [("first", 2), ("second", 4)]

    shadow = pipeline(tmp_path, "shadow")
    planned = penstock("savepoint", "fork", orders, "first", shadow, directory=tmp_path)
    assert "Pipeline shadow goes on with batch 3" in planned.out, str(planned)
    assert not (tmp_path / "shadow" / "checkpoint").exists()
    forked = penstock("savepoint", "fork", orders, "first", shadow, "--yes", directory=tmp_path)
    assert forked.code == 0, str(forked)
    put(tmp_path, 6)
    run(tmp_path, shadow)
    run(tmp_path, orders)
    assert table(tmp_path, "shadow") == twice(4, 5, 6)
    assert table(tmp_path, "orders") == twice(1, 2, 3, 4, 5, 6)
    for file in (orders, shadow):
        assert penstock("verify", file, directory=tmp_path).code == 0
    again = penstock("savepoint", "fork", orders, "first", shadow, "--yes", directory=tmp_path)
    assert (again.code, "holds batches already" in again.err) == (3, True), str(again)

    assert penstock("savepoint", "delete", orders, "first", "--yes", directory=tmp_path).code == 0
    checked = penstock("savepoint", "verify", orders, "second", directory=tmp_path)
    assert (checked.code, "goes on with batch 5" in checked.out) == (0, True), str(checked)
    (tmp_path / "orders" / "savepoints" / "second" / "checkpoint" / "offsets" / "4").write_text("v1\n")
    damaged = penstock("savepoint", "verify", orders, "second", directory=tmp_path)
    assert (damaged.code, "offsets/4 is not what was copied" in damaged.out) == (5, True), str(damaged)


SUMS = """\
pipeline: sums
home: ./sums
sources:
  orders: {format: csv, path: ./in, schema: "n INT", options: {maxFilesPerTrigger: 1}}
transform: {python: "distinct:once"}
sinks:
  lake: {type: parquet, accounts: {all: ./sums/lake}}
trigger: {available_now: true}
"""
ONCE = """\
from pyspark.sql import functions as F

def once(spark, sources):
    return sources["orders"].dropDuplicates(["n"])
"""


def test_a_query_with_state_goes_back_to_a_savepoint_though_its_checkpoint_is_lost(tmp_path: Path) -> None:
    (tmp_path / "sums.yaml").write_text(SUMS)
    (tmp_path / "distinct.py").write_text(ONCE)
    put(tmp_path, 1, 2)
    run(tmp_path, "sums.yaml")
    made = penstock("savepoint", "create", "sums.yaml", "a", directory=tmp_path)
    assert made.code == 0, str(made)
    put(tmp_path, 3, 4, 5)
    run(tmp_path, "sums.yaml")
    shutil.rmtree(tmp_path / "sums" / "checkpoint")
    planned = penstock("savepoint", "restore", "sums.yaml", "a", directory=tmp_path)
    assert (planned.code, "Batches 2 to 4 would be taken back" in planned.out) == (0, True), str(planned)
    assert not (tmp_path / "sums" / "checkpoint").exists()
    failed = penstock("savepoint", "restore", "sums.yaml", "a", "--yes", faults="checkpoint.change=error@3", directory=tmp_path)
    assert failed.code == 75, str(failed)
    assert penstock("run", "sums.yaml", directory=tmp_path).code == 3
    done = penstock("savepoint", "restore", "sums.yaml", "a", "--yes", directory=tmp_path)
    assert done.code == 0, str(done)
    assert penstock("verify", "sums.yaml", directory=tmp_path).code == 0
    (tmp_path / "in" / "again.csv").write_text("1\n2\n6\n")  # state that is not there would deliver 1 and 2 again
    run(tmp_path, "sums.yaml")
    found = pyarrow.dataset.dataset(tmp_path / "sums" / "lake", format="parquet").to_table()["n"].to_pylist()
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    assert penstock("verify", "sums.yaml", directory=tmp_path).code == 0


def test_a_lost_checkpoint_of_a_query_with_state_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "sums.yaml").write_text(SUMS)
    (tmp_path / "distinct.py").write_text(ONCE)
    rebuild = ("checkpoint", "rebuild", "sums.yaml")
    put(tmp_path, 1, 2)
    run(tmp_path, "sums.yaml")
    assert penstock("savepoint", "create", "sums.yaml", "a", directory=tmp_path).code == 0
    put(tmp_path, 3, 4, 5)
    run(tmp_path, "sums.yaml")
    assert penstock("savepoint", "create", "sums.yaml", "damaged", directory=tmp_path).code == 0
    (tmp_path / "sums" / "savepoints" / "damaged" / "checkpoint" / "offsets" / "4").write_text("v1\n")
    shutil.rmtree(tmp_path / "sums" / "checkpoint")
    planned = penstock(*rebuild, directory=tmp_path)
    assert planned.code == 0, str(planned)
    assert "from savepoint a: Spark goes on after batch 4. Spark computes batches 2 to 4 once more" in planned.out
    assert not list((tmp_path / "sums").glob("checkpoint*"))
    for at in ("rebuild.copy=error", "rebuild.compute=error@2", "rebuild.remove=error", "checkpoint.change=error@3"):
        failed = penstock(*rebuild, "--yes", faults=at, directory=tmp_path)
        assert failed.code == 75, str(failed)
        assert penstock("run", "sums.yaml", directory=tmp_path).code == 3
    done = penstock(*rebuild, "--yes", "--json", directory=tmp_path)
    assert (done.code, done.last["sentence"].endswith("after batch 4.")) == (0, True), str(done)
    assert not list((tmp_path / "sums" / "checkpoint" / "penstock-acts" / "rebuilt").rglob("*.delta"))
    (tmp_path / "in" / "again.csv").write_text("2\n4\n6\n")  # state that is not there would deliver 2 and 4 again
    run(tmp_path, "sums.yaml")
    found = pyarrow.dataset.dataset(tmp_path / "sums" / "lake", format="parquet").to_table()["n"].to_pylist()
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    for command in (("verify",), ("checkpoint", "verify")):
        assert penstock(*command, "sums.yaml", directory=tmp_path).code == 0


def test_state_that_would_be_another_one_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / "sums.yaml").write_text(SUMS)
    (tmp_path / "distinct.py").write_text(ONCE)
    place = tmp_path / "sums" / "checkpoint"
    put(tmp_path, 1)
    run(tmp_path, "sums.yaml")

    def refused(code: int = 3) -> str:
        ended = penstock("checkpoint", "rebuild", "sums.yaml", "--yes", directory=tmp_path)
        assert ended.code == code, str(ended)
        assert not [left for left in place.rglob("*") if left.is_file()]
        return ended.err

    lost = Path(shutil.move(place, tmp_path / "lost"))
    assert "has no savepoint of this query to begin with" in refused()
    shutil.move(lost, place)
    assert penstock("savepoint", "create", "sums.yaml", "a", directory=tmp_path).code == 0
    put(tmp_path, 2)
    run(tmp_path, "sums.yaml")
    (tmp_path / "distinct.py").write_text(ONCE.replace('["n"]', '["n"]).filter("n > 0"'))
    put(tmp_path, 3)
    run(tmp_path, "sums.yaml")
    run(tmp_path, "sums.yaml")
    shutil.rmtree(place)
    two = refused()
    assert "transform.module differs, so their state would be another one" in two
    assert "They were not all computed by the same query" in two
    shutil.rmtree(tmp_path / "sums" / "runs")  # where nothing tells what the query was, its rows do
    planned = penstock("checkpoint", "rebuild", "sums.yaml", directory=tmp_path)
    assert "What query computed 2 of these batches, from batch 1 on, is not known any more" in planned.out, str(planned)
    (tmp_path / "distinct.py").write_text(ONCE.replace('["n"]', '["n"]).filter("n <> 3"'))
    assert "was decided with 1 rows, and the query makes 0 of the same input now" in refused(1)
    (tmp_path / "distinct.py").write_text(ONCE.replace(".drop", ".withColumn('at', F.current_timestamp()).drop"))
    assert "The query keeps state and looks at the clock (current_timestamp())" in refused()
    (tmp_path / "distinct.py").write_text(ONCE)
    (tmp_path / "in" / "3.csv").unlink()
    assert "once more for its state: source orders: " in refused()
    assert penstock("verify", "sums.yaml", directory=tmp_path).code == 0


PAIRS = """\
pipeline: pairs
home: ./pairs
sources:
  left: {format: csv, path: ./left, SIDE}
  right: {format: csv, path: ./right, SIDE}
transform:
  sql: "SELECT l.n, r.n AS m FROM `left` l LEFT JOIN `right` r ON l.n = r.n AND r.at BETWEEN l.at AND l.at + INTERVAL 20 SECONDS"
sinks:
  lake: {type: parquet, accounts: {all: ./pairs/lake}}
trigger: {available_now: true}
"""


SIDE = 'schema: "n INT, at TIMESTAMP", options: {maxFilesPerTrigger: 1}, watermark: {column: at, delay: 0s}'


def test_the_least_of_two_watermarks_is_what_it_was(tmp_path: Path) -> None:
    """The right side ends first: a start that knows only the left one's watermark would find no row final."""
    (tmp_path / "pairs.yaml").write_text(PAIRS.replace("SIDE", SIDE))
    for side, minutes in (("left", 0), ("right", 0)):
        put_event(tmp_path / side, minutes)
    run(tmp_path, "pairs.yaml")
    assert penstock("savepoint", "create", "pairs.yaml", "a", directory=tmp_path).code == 0
    for side, minutes in (("right", 50), ("left", 1), ("left", 10), ("left", 20)):
        put_event(tmp_path / side, minutes)
    run(tmp_path, "pairs.yaml")
    shutil.rmtree(tmp_path / "pairs" / "checkpoint")
    done = penstock("checkpoint", "rebuild", "pairs.yaml", "--yes", directory=tmp_path)
    assert done.code == 0, str(done)
    verified = penstock("checkpoint", "verify", "pairs.yaml", directory=tmp_path)
    assert (verified.code, "does not fit" in verified.out) == (0, False), str(verified)


def put_event(folder: Path, minutes: int) -> None:
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{minutes}.csv"
    hidden.write_text(f"{minutes},2026-01-01T00:{minutes:02}:00Z\n")
    os.utime(hidden, (minutes, 1_700_000_000 + minutes))
    hidden.rename(folder / f"{minutes}.csv")


def test_a_lost_checkpoint_of_files_is_made_again(tmp_path: Path) -> None:
    orders = pipeline(tmp_path, "orders")
    put(tmp_path, *range(1, 13))  # twelve batches: Spark compacts its log of files at the tenth
    run(tmp_path, orders)
    whole = penstock("checkpoint", "rebuild", orders, directory=tmp_path)
    assert (whole.code, "is not lost" in whole.err) == (3, True), str(whole)
    shutil.rmtree(tmp_path / "orders" / "checkpoint")
    put(tmp_path, 13)
    assert penstock("run", orders, directory=tmp_path).code == 3
    planned = penstock("checkpoint", "rebuild", orders, directory=tmp_path)
    assert (planned.code, "12 files are read" in planned.out) == (0, True), str(planned)
    assert not (tmp_path / "orders" / "checkpoint").exists()
    done = penstock("checkpoint", "rebuild", orders, "--yes", "--json", directory=tmp_path)
    assert (done.code, done.last["next_batch_id"]) == (0, 12), str(done)
    run(tmp_path, orders)
    put(tmp_path, *range(14, 24))  # past the next compaction
    run(tmp_path, orders)
    assert table(tmp_path, "orders") == twice(*range(1, 24))
    assert penstock("verify", orders, directory=tmp_path).code == 0
    assert penstock("checkpoint", "verify", orders, directory=tmp_path).code == 0


MIXED = """\
pipeline: mixed
home: ./mixed
spark: {{conf: {{spark.sql.streaming.fileSource.log.compactInterval: "3"}}}}
sources:
  events:
    format: kafka
    reader: {reader}
    options: {{kafka.bootstrap.servers: "{bootstrap}", subscribe: {topic}, startingOffsets: earliest, maxOffsetsPerTrigger: 5}}
  orders: {{format: csv, path: ./in, schema: "n INT", options: {{maxFilesPerTrigger: 1}}}}
transform:
  sql: >
    SELECT n FROM orders UNION ALL SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM events
    UNION ALL SELECT -n AS n FROM orders
sinks:
  table: {{type: sqlite, url: "sqlite:///mixed.db", table: orders, create: true}}
trigger: {{available_now: true}}
"""


@pytest.fixture
def _own_interval(spark: SparkSession) -> Iterator[None]:
    """Leave the session to the next test as it was: the pipeline's setting stays in it, and Spark cannot go on with another."""
    yield
    spark.conf.unset("spark.sql.streaming.fileSource.log.compactInterval")


@pytest.mark.usefixtures("_own_interval")
@pytest.mark.parametrize("reader", ["spark", "python"])
def test_a_lost_checkpoint_of_several_sources_is_made_again(tmp_path: Path, reader: str) -> None:
    """One of the sources is read in two places; both readers of Kafka note different things in the checkpoint."""
    topic = new_topic()
    kafka = Producer({"bootstrap.servers": server("kafka").bootstrap})

    def produce(numbers: range) -> None:
        for number in numbers:
            kafka.produce(topic, str(number).encode())
        kafka.flush()

    (tmp_path / "mixed.yaml").write_text(MIXED.format(reader=reader, bootstrap=server("kafka").bootstrap, topic=topic))
    produce(range(100, 112))
    put(tmp_path, 1, 2, 3, 4)
    run(tmp_path, "mixed.yaml")
    shutil.rmtree(tmp_path / "mixed" / "checkpoint")
    done = penstock("checkpoint", "rebuild", "mixed.yaml", "--yes", "--json", directory=tmp_path)
    assert done.code == 0, str(done)
    produce(range(112, 122))
    put(tmp_path, 5)
    run(tmp_path, "mixed.yaml")
    expected = twice(*range(1, 6)) + twice(*range(-5, 0)) + Counter(range(100, 122))
    assert table(tmp_path, "mixed") == expected
    assert penstock("verify", "mixed.yaml", directory=tmp_path).code == 0


def test_what_the_ledger_lacks_is_refused_and_named(tmp_path: Path) -> None:
    put(tmp_path, 1)
    file = pipeline(tmp_path, "orders")

    def refused() -> str:
        ended = penstock("checkpoint", "rebuild", file, "--yes", directory=tmp_path)
        assert ended.code == 3, str(ended)
        return ended.err

    assert "is empty, so it cannot tell what the checkpoint held" in refused()
    text = (tmp_path / file).read_text().replace("create: true", "create: true, write: upsert, key: [n]")
    (tmp_path / file).write_text(f"{text}output_mode: update\ntransform: {{sql: SELECT DISTINCT n FROM orders}}\n")
    run(tmp_path, file)
    shutil.rmtree(tmp_path / "orders" / "checkpoint")
    assert "The query keeps state (" in refused()
    (tmp_path / file).write_text(text.replace("  orders:", "  renamed:"))
    assert "The query reads renamed, but batch 0 was decided with orders" in refused()
    assert not (tmp_path / "orders" / "checkpoint").exists()
