"""A sink that is added later is given the batches before it, killed on the way, and takes part from then on."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from penstock.core import faults
from tests.crash.commandline import Ended, penstock
from tests.crash.test_kafka_gaps import delete_records
from tests.killed import KilledError
from tests.seed import SEED
from tests.servers.fixtures import server, unique
from tests.spark.kafka_query import produced
from tests.spark.page import Page, run, run_beside
from tests.spark.streams import put
from tests.spark.test_journal_pipeline import push

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "1"))

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark", "kills_raise")]

FILE = """
pipeline: numbers
home: home
trigger: {{available_now: true}}
sources:
  numbers: {source}
transform: {{sql: "{sql}"}}
sinks:
  first: {{type: sqlite, url: "sqlite:///first.db", table: numbers}}
{sinks}"""
LATER = """\
  later: {type: sqlite, url: "sqlite:///later.db", table: numbers}
"""
KEYED = """\
  keyed: {type: sqlite, url: "sqlite:///keyed.db", table: numbers, write: upsert, key: [journal, sequence]}
"""
ONCE = """
def rows(spark, sources):
    return sources["numbers"].selectExpr("n", "text", "n % 2 AS half").dropDuplicates()
"""
LAKE = """\
  lake:
    type: parquet
    accounts: {even: lake/even, odd: lake/odd}
    route: {sql: "if(half = 0, 'even', 'odd')"}
    where: n <> 4
    exclude: [text]
"""

Rows = Counter[tuple[object, ...]]


class Place:
    """A directory with a pipeline file of a source, a transform and some sinks, and the commands on it."""

    def __init__(self, root: Path, *, source: str, sql: str) -> None:
        self.root, self.source, self.sql = root, source, sql

    def write(self, sinks: str = "", *, sql: str | None = None) -> None:
        (self.root / "numbers.yaml").write_text(FILE.format(source=self.source, sinks=sinks, sql=sql or self.sql))

    def penstock(self, verb: str, *words: str, fault: str = "") -> Ended:
        return penstock(verb, "numbers.yaml", *words, "--json", directory=self.root, faults=fault)

    def done(self, verb: str, *words: str) -> Ended:
        ended = self.penstock(verb, *words)
        assert ended.code == 0, str(ended)
        return ended

    def killed(self, fault: str) -> None:
        with pytest.raises(KilledError):
            pytest.fail(str(self.penstock("backfill", "--sink", "later", fault=f"{fault}=kill@2")))
        faults.arm("")

    def rows(self, name: str = "later") -> Rows:
        with closing(sqlite3.connect(self.root / f"{name}.db")) as connection:
            return Counter(connection.execute("SELECT * FROM numbers"))


def lake(root: Path) -> Rows:
    rows: Rows = Counter()
    for name in ("even", "odd"):
        table = ds.dataset(root / "lake" / name, format="parquet").to_table()
        assert table.column_names == ["n", "half"]
        rows += Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows


def refused(ended: Ended, message: str) -> None:
    assert ended.code == 3, str(ended)
    assert message in ended.err
    assert json.loads(ended.out.splitlines()[-1])["error"]["exit_code"] == 3


def test_sinks_of_a_pipeline_of_files(tmp_path: Path) -> None:
    source = '{format: csv, path: in, schema: "n INT, text STRING, day INT", options: {maxFilesPerTrigger: 1}}'
    place = Place(
        tmp_path, source=source, sql="SELECT n, concat(text, '!') AS text, n % 2 AS half FROM numbers WHERE n > 0 AND day = 1"
    )
    files = [put(tmp_path / "in" / "day=1", f"part {at} [a] %20.csv", f"{at},one", f"{at + 1},two", "-1,no") for at in (1, 2, 4)]
    place.write()
    place.done("run")
    place.write(LATER + LAKE)
    planned = place.done("backfill", "--sink", "later", "--dry-run").last
    assert (planned["batches"], planned["rows"], planned["joins_at"], planned["done"]) == (3, 6, 3, False)
    place.killed("sqlite.commit")
    put(tmp_path / "in" / "day=1", "4.csv", "6,six")
    place.done("run")  # without the sink, which has a part of what came before
    assert place.rows("first").total() == 7
    assert place.rows().total() < 6
    held = files[2].rename(tmp_path / "held")
    refused(place.penstock("backfill", "--sink", "later"), "To go on without them, give the sink another name and an empty place")
    held.rename(files[2])
    done = place.done("backfill", "--sink", "later").last
    assert (done["done"], done["joined"], done["fences"]) == (True, True, False)
    assert done["given"] + done["batches"] == 4
    assert place.rows() == place.rows("first")
    held = files[0].rename(tmp_path / "held")
    refused(place.penstock("backfill", "--sink", "lake"), "1 of 3 batches cannot be read again (batch 0)")
    held.rename(files[0])
    place.write(LATER + LAKE, sql=place.sql + " AND n <> 2")
    refused(place.penstock("backfill", "--sink", "lake"), "Batch 0 was decided with 2 rows, but the transform makes 1")
    (tmp_path / "once.py").write_text(ONCE)
    once = place.penstock("backfill", "--sink", "lake", "--set", "transform={python: 'once:rows'}")
    refused(once, "The transform keeps state (Deduplicate)")
    place.write(LATER + LAKE)
    done = place.done("backfill", "--sink", "lake", "--from-batch", "0").last  # it has taken part since
    assert (done["totals"]["rows"], done["fences"]) == (5, True)
    put(tmp_path / "in" / "day=1", "5.csv", "7,seven")
    place.done("run")
    assert place.rows() == place.rows("first")
    assert place.rows("first").total() == 8
    assert lake(tmp_path) == Counter((n, half) for n, _, half in place.rows("first").elements() if n != 4)
    assert place.done("verify").last["ok"]
    assert place.done("backfill", "--sink", "lake").last["batches"] == 0


def test_rows_that_do_not_meet_a_rule_are_passed_over_again(tmp_path: Path) -> None:
    rules = "expect: {whole: {sql: _corrupt_record IS NULL, on_violation: drop}, small: {sql: n < 9, on_violation: quarantine}}"
    source = f'{{format: csv, path: in, schema: "n INT, text STRING, _corrupt_record STRING", {rules}}}'
    place = Place(tmp_path, source=source, sql="SELECT n, text FROM numbers")
    put(tmp_path / "in", "1.csv", "1,one", "x,two", "3,three", "11,eleven")
    place.write("quarantine: ./bad")
    place.done("run")
    place.write(LATER + "quarantine: ./bad")
    assert place.done("backfill", "--sink", "later").last["rows"] == 2
    assert place.rows() == place.rows("first") == Counter([(1, "one"), (3, "three")])
    assert place.done("verify").last["ok"]


@pytest.mark.parametrize("reader", ["spark", "python"])
def test_a_sink_of_a_kafka_pipeline(tmp_path: Path, reader: str) -> None:
    running = server("kafka")
    topic = running.topic(unique("numbers"), 2, retention_ms="-1", retention_bytes="-1")
    options = (
        f'kafka.bootstrap.servers: "{running.bootstrap}", subscribe: {topic}, startingOffsets: earliest, maxOffsetsPerTrigger: 4'
    )
    sql = "SELECT CAST(value AS STRING) AS value, partition, offset, timestamp FROM numbers"
    place = Place(tmp_path, source=f"{{format: kafka, reader: {reader}, options: {{{options}}}}}", sql=sql)
    produced(topic, range(10), partitions=2)
    place.write()
    place.done("run")
    place.write(LATER)
    place.killed("ledger.sqlite_commit")
    done = place.done("backfill", "--sink", "later").last
    assert done["last_batch_id"] == done["joins_at"] - 1
    produced(topic, range(10, 15), partitions=2)
    place.done("run")
    assert place.rows() == place.rows("first")
    assert place.rows().total() == 15
    assert place.done("verify").last["ok"]
    if reader == "spark":
        return
    place.write(LATER + LATER.replace("later", "last"))
    delete_records(topic, {0: 1})
    refused(place.penstock("backfill", "--sink", "last"), "batches cannot be read again (batch 0)")


def test_a_sink_of_a_journal_pipeline(tmp_path: Path) -> None:
    sql = "SELECT CAST(value AS STRING) AS value, journal, sequence, received_at FROM numbers"
    place = Place(tmp_path, source='{format: journal, path: "./journals/*", options: {maxRecordsPerTrigger: 8}}', sql=sql)
    homes = [tmp_path / "journals" / name for name in ("a", "b")]
    for home in homes:
        push(home, 10).close()
    place.write()
    place.done("run")
    place.write(LATER)
    place.killed("sqlite.move")
    place.done("backfill", "--sink", "later")
    push(homes[0], 3).close()
    place.done("run")
    assert place.rows() == place.rows("first")
    assert place.rows().total() == 23
    assert place.done("verify").last["ok"]
    place.write(LATER + KEYED)
    push(homes[1], 3).close()
    place.done("run")
    refused(place.penstock("backfill", "--sink", "keyed"), "Sink 'keyed' (write: upsert) has taken part since batch")


class Beside:
    """A driver in a process of its own, one file to a batch, while the test goes on."""

    def __init__(self, place: Place) -> None:
        words = ["-m", "penstock", "run", "numbers.yaml", "--set", "trigger={processing_time: 100ms}", "--json"]
        self.place = place
        self.process = subprocess.Popen(
            [sys.executable, *words], cwd=place.root, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def await_rows(self, rows: int, *, sink: str = "first") -> None:
        """Wait until the sink has so many rows: the driver tells each batch."""
        assert self.process.stdout is not None
        while self.place.rows(sink).total() < rows:
            assert self.process.stdout.readline(), "the driver ended"

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        os.kill(self.process.pid, how)
        try:
            self.process.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.returncode


def test_a_driver_that_runs_is_left_alone_and_lets_the_sink_join(tmp_path: Path) -> None:
    source = '{format: csv, path: in, schema: "n INT, text STRING", options: {maxFilesPerTrigger: 1}}'
    place = Place(tmp_path, source=source, sql="SELECT * FROM numbers")
    for at in range(3):
        put(tmp_path / "in", f"{at}.csv", f"{at},some", f"{at},others")
    place.write()
    place.done("run")
    place.write(LATER)
    place.killed("sqlite.commit")
    driver = Beside(place)
    try:
        put(tmp_path / "in", "3.csv", "3,some")
        driver.await_rows(7)
        done = place.done("backfill", "--sink", "later").last
        assert (done["joined"], done["fences"], place.rows().total()) == (True, False, 7)
        put(tmp_path / "in", "4.csv", "4,some")
        driver.await_rows(8, sink="later")
    finally:
        code = driver.end()
    assert code == 0
    assert place.rows() == place.rows("first")
    assert place.done("verify").last["ok"]


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_both_are_killed_at_random(tmp_path: Path) -> None:
    """CI kills once; `make soak` PENSTOCK_SOAK_KILLS times. PENSTOCK_SEED replays it."""
    print(f"PENSTOCK_SEED={SEED}")
    chance = random.Random(SEED)
    source = '{format: csv, path: in, schema: "n INT, text STRING", options: {maxFilesPerTrigger: 1}}'
    place = Place(tmp_path, source=source, sql="SELECT * FROM numbers")
    put(tmp_path / "in", "0.csv", "0,some")
    place.write()
    place.done("run")
    place.write(LATER)
    for at in range(KILLS + 1):
        if at:  # before the first one the sink is not apart: a run that has it would deliver to it
            driver = Beside(place)
        words = [sys.executable, "-m", "penstock", "backfill", "numbers.yaml", "--sink", "later", "--json"]
        filling = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
        for part in range(3):
            put(tmp_path / "in", f"{at}-{part}.csv", f"{at},some", f"{at},{part}")
        with suppress(subprocess.TimeoutExpired):
            filling.wait(chance.uniform(3, 25) if at else None)
        os.killpg(filling.pid, signal.SIGKILL) if filling.poll() is None else None
        filling.wait()
        if at:
            driver.end(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
    place.done("backfill", "--sink", "later")
    place.done("run")
    place.done("backfill", "--sink", "later")
    assert place.rows() == place.rows("first")
    assert place.rows().total() == 1 + (KILLS + 1) * 6
    assert place.done("verify").last["ok"]


PAGE = Page("backfill")


def test_the_page_works_and_a_killed_backfill_is_finished_by_the_next(tmp_path: Path) -> None:
    whole = PAGE.blocks("yaml")[0]
    file = tmp_path / "backfill.yaml"
    file.write_text("".join(line for line in whole.splitlines(keepends=True) if "warehouse" not in line))
    orders = [{"id": at, "shop": "ab"[at % 2], "amount": at % 5} for at in range(30)]
    for at in range(3):
        put(tmp_path / "incoming", f"{at}.json", *map(json.dumps, orders[at * 10 : at * 10 + 10]))
        assert run_beside(tmp_path, "penstock run backfill.yaml").returncode == 0
    file.write_text(whole)
    plan, backfill, *rest = PAGE.commands
    planned = run_beside(tmp_path, plan).stdout
    assert "Sink warehouse lacks 3 batches (0 to 2), of which the pipeline delivered 24 rows." in planned
    assert run(tmp_path, backfill, faults="sqlite.commit=kill@2").returncode == -signal.SIGKILL
    for command in (backfill, *rest):
        done = run_beside(tmp_path, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    with closing(sqlite3.connect(tmp_path / "warehouse.db")) as connection:
        found = Counter(connection.execute("SELECT id, shop, amount FROM orders"))
    assert found == Counter((each["id"], each["shop"], each["amount"]) for each in orders if each["amount"])
