"""What `check` says of a change is what happens: what breaks really loses, repeats or fails, and what is safe goes on exactly."""

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.run.preflight.change import Preflight
from penstock.run.start import seen_by_spark
from penstock.run.startable import preflight_of
from tests.crash.commandline import Ended, penstock
from tests.spark.page import Page
from tests.spark.streams import put

FILE = """\
pipeline: sales
home: ./state
sources:
  orders:
    format: csv
    path: ./incoming
    schema: "id INT, shop INT, at TIMESTAMP, amount INT"
    options: {maxFilesPerTrigger: 10}
transform:
  sql: SELECT id, shop, amount FROM orders
sinks:
  table: {type: sqlite, url: "sqlite:///sales.db", table: sales}
trigger: {available_now: true}
"""
COUNTED = FILE.replace("SELECT id, shop, amount FROM orders", "SELECT shop, sum(amount) AS total FROM orders GROUP BY shop")
COUNTED = COUNTED.replace("table: sales}", "table: sales, write: upsert, key: [shop]}\noutput_mode: update")
KEYED = FILE.replace("table: sales}", "table: sales, write: upsert, key: [id]}").replace("SELECT id, shop,", "SELECT id,")

pytestmark = pytest.mark.usefixtures("spark")


JOBS = """\
def first(spark, sources):
    return sources["orders"].dropDuplicates(["id"]).select("id", "shop", "amount")

def first_of_shop(spark, sources):
    return sources["orders"].dropDuplicates(["shop"]).select("id", "shop", "amount")
"""
WINDOWS = FILE.replace(
    "SELECT id, shop, amount FROM orders",
    "SELECT window.start AS at, sum(amount) AS total FROM orders GROUP BY window(at, '5 minutes')",
).replace("maxFilesPerTrigger: 10}", "maxFilesPerTrigger: 10}\n    watermark: {column: at, delay: 1m}")
WINDOWS = WINDOWS.replace("table: sales}", "table: sales, write: upsert, key: [at]}")
PARTITIONS, PROVIDER = "spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FIRST = ("1,7,2026-01-01T00:00:00Z,5", "2,8,2026-01-01T00:01:00Z,5")
SECOND = ("3,1,2026-01-01T03:00:00Z,5", "4,7,2026-01-01T03:00:00Z,5")


class Project:
    """A pipeline file in a directory of its own; `orders` go into its input."""

    def __init__(self, directory: Path, text: str) -> None:
        self.directory, self.file = directory, directory / "sales.yaml"
        self.file.write_text(text)
        (directory / "incoming").mkdir()
        (directory / "elsewhere").mkdir()

    def orders(self, name: str, *lines: str) -> None:
        put(self.directory / "incoming", name, *lines)

    def change(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def penstock(self, verb: str, *words: str) -> Ended:
        return penstock(verb, str(self.file), *words, directory=self.directory)

    def run(self) -> None:
        ended = self.penstock("run", "--json")
        assert ended.code == 0, str(ended)

    def changes(self, spark: SparkSession) -> Mapping[str, str]:
        """The verdict on each part that changed, as `check` has it."""
        pipeline = Pipeline.from_file(self.file)
        frame, sources = pipeline.frame(spark)
        seen = seen_by_spark(frame, tuple(sources))
        found = preflight_of(pipeline.settings, pipeline.plan, seen=seen)
        assert found.described
        return {change.part: change.verdict.value for change in found.changes}

    def rows(self, query: str = "SELECT * FROM sales") -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.directory / "sales.db")) as connection:
            return sorted(connection.execute(query))


def project(directory: Path, text: str) -> Project:
    """A pipeline that has delivered its first orders."""
    made = Project(directory, text)
    (directory / "sales_jobs.py").write_text(JOBS)
    made.orders("1.csv", *FIRST)
    made.run()
    return made


def test_what_is_safe_goes_on_exactly(spark: SparkSession, tmp_path: Path) -> None:
    made = project(tmp_path, FILE)
    checked = made.penstock("check")
    assert checked.code == 0, str(checked)
    assert "nothing changed since the last run" in checked.out
    made.change("SELECT id, shop, amount FROM orders", "SELECT id, shop + 100 AS shop, amount FROM orders WHERE id > 0")
    made.change("maxFilesPerTrigger: 10", "maxFilesPerTrigger: 1, sep: ','")
    made.change("trigger: {available_now: true}", "trigger: {once: true}")
    made.change("table: sales}", 'table: sales}\n  more: {type: sqlite, url: "sqlite:///more.db", table: sales}')
    ended = made.penstock("check", "--json")
    assert ended.code == 0, str(ended)
    found = json.loads(ended.out)["preflight"]
    assert {change["part"]: change["verdict"] for change in found["changes"]} == {
        "sinks.more": "safe",
        "sources.orders.options.maxFilesPerTrigger": "safe",
        "sources.orders.options.sep": "safe",
        "transform.sql": "safe",
        "trigger": "safe",
    }
    assert (found["last_run"], found["described"], found["breaks"]) == (1, True, False)
    made.orders("2.csv", *SECOND)
    made.run()
    assert made.rows() == [(1, 7, 5), (2, 8, 5), (3, 101, 5), (4, 107, 5)]
    with closing(sqlite3.connect(tmp_path / "more.db")) as connection:
        assert sorted(connection.execute("SELECT id FROM sales")) == [(3,), (4,)]
    assert sorted(path.name for path in (tmp_path / "state/runs").iterdir()) == ["1.json", "2.json"]
    assert made.penstock("verify").code == 0


INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"


@pytest.fixture
def interval_of_spark(spark: SparkSession) -> Iterator[None]:
    yield
    spark.conf.unset(INTERVAL)


@pytest.mark.usefixtures("interval_of_spark")
def test_spark_does_not_start_with_another_interval_of_a_log_that_was_never_compacted(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = project(tmp_path, FILE)
    made.orders("2.csv", *SECOND)
    made.run()
    setting = (f"spark: {{conf: {{{INTERVAL}: 2}}}}\nsources:", "sources:")
    made.change(*setting[::-1])
    assert made.changes(spark) == {f"spark.conf.{INTERVAL}": "breaks"}
    refused = made.penstock("run", "--json")
    assert (refused.code, "PipelineChanged" in refused.err + refused.out) == (3, True), str(refused)
    made.change(*setting)
    spark.conf.set(INTERVAL, "2")  # it really breaks
    made.orders("3.csv", "5,7,2026-01-01T04:00:00Z,5")
    broken = made.penstock("run", "--json")
    assert broken.code not in {0, 3}, str(broken)
    spark.conf.unset(INTERVAL)
    made.run()
    assert [row[0] for row in made.rows()] == [1, 2, 3, 4, 5]


def test_state_goes_on_exactly_where_spark_fixes_its_settings(spark: SparkSession, tmp_path: Path) -> None:
    made = project(tmp_path, COUNTED)
    made.change("sources:", f"spark: {{conf: {{{PARTITIONS}: 7, {PROVIDER}: {ROCKSDB}}}}}\nsources:")
    made.change("SELECT shop, sum(amount) AS total FROM orders", "SELECT shop, sum(amount) + 0 AS total FROM orders WHERE id > 0")
    assert set(made.changes(spark).values()) == {"safe"}
    made.orders("2.csv", *SECOND)
    before = {key: spark.conf.get(key) for key in (PARTITIONS, PROVIDER)}
    try:
        spark.conf.set(PARTITIONS, "7")
        spark.conf.set(PROVIDER, ROCKSDB)
        made.run()
    finally:
        for key, value in before.items():
            spark.conf.set(key, str(value))
    assert made.rows() == [(1, 5), (7, 10), (8, 5)]


@dataclass(frozen=True)
class Broken:
    """A change that breaks: of what, the part, and what comes of it where nobody refuses (None: Spark fails)."""

    file: str
    edits: tuple[tuple[str, str], ...]
    part: str
    rows: list[tuple[object, ...]] | None
    right: list[tuple[object, ...]] | None = None


BREAKS = {
    "totals of one column go on as those of another": Broken(
        COUNTED, (("SELECT shop,", "SELECT amount AS shop,"), ("GROUP BY shop", "GROUP BY amount")), "state.0.keys",
        rows=[(5, 10), (7, 5), (8, 5)], right=[(5, 20), (7, 5), (8, 5)],
    ),
    "rows of a new key are dropped as if they were known": Broken(
        FILE.replace("sql: SELECT id, shop, amount FROM orders", "python: sales_jobs:first"),
        (("sales_jobs:first", "sales_jobs:first_of_shop"),), "state.0.keys",
        rows=[(1, 7, 5), (2, 8, 5), (4, 7, 5)], right=[(1, 7, 5), (2, 8, 5), (3, 1, 5), (4, 7, 5)],
    ),
    "an open window is never sent": Broken(
        WINDOWS, (("trigger:", "output_mode: update\ntrigger:"),), "output_mode",
        rows=[("2026-01-01 03:00:00.000000Z", 10)],
        right=[("2026-01-01 00:00:00.000000Z", 10), ("2026-01-01 03:00:00.000000Z", 10)],
    ),
    "state that is not there": Broken(
        KEYED,
        (("amount FROM orders", "sum(amount) AS amount FROM orders GROUP BY id"), ("trigger:", "output_mode: update\ntrigger:")),
        "state", rows=None,
    ),
    "files outside of the path": Broken(FILE, (("./incoming", "./elsewhere"),), "sources.orders.path", rows=None),
    "offsets of another kind": Broken(
        FILE,
        (('format: csv\n    path: ./incoming\n    schema: "id INT, shop INT, at TIMESTAMP, amount INT"', "format: rate"),
         ("maxFilesPerTrigger: 10", "rowsPerSecond: 1"),
         ("SELECT id, shop, amount FROM", "SELECT CAST(value AS INT) AS id, 1 AS shop, 2 AS amount FROM")),
        "sources.orders.format", rows=None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_is_refused_and_would_break(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    given = BREAKS[name]
    made = project(tmp_path, given.file)
    for old, new in given.edits:
        made.change(old, new)
    assert made.changes(spark)[given.part] == "breaks"
    before = made.rows()
    made.orders("2.csv", *SECOND)
    refused = made.penstock("run")
    assert refused.code == 3, str(refused)
    assert given.part in refused.err
    assert made.rows() == before
    monkeypatch.setattr(Preflight, "require_startable", lambda _: None)
    ended = made.penstock("run")
    if given.rows is None:
        assert ended.code != 0
        return
    assert ended.code == 0, str(ended)
    assert made.rows() == given.rows != given.right


def test_another_directory_goes_on_exactly_as_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """As the refusal of a plain path says it."""
    made = project(tmp_path, FILE)
    made.change("./incoming", "./elsewhere")
    refused = made.penstock("run")
    [pattern] = re.findall(r"`path: (\S+)`", refused.err)
    made.change("./elsewhere", f'"{pattern}"')
    assert made.changes(spark) == {"sources.orders.path": "safe_with_action"}
    put(tmp_path / "elsewhere", "2.csv", *SECOND)
    made.run()
    made.run()
    assert [row[0] for row in made.rows()] == [1, 2, 3, 4]


def test_an_account_less_is_safe_and_verify_says_that_nobody_looked(spark: SparkSession, tmp_path: Path) -> None:
    lake = "lake: {type: parquet, accounts: {north: ./north, south: ./south}, route: {sql: PLACE}}"
    places = "\"CASE WHEN shop = 7 THEN 'north' ELSE 'south' END\""
    made = project(tmp_path, FILE.replace("sinks:\n", f"sinks:\n  {lake}\n").replace("PLACE", places))
    assert made.penstock("recover").code == 0
    made.change(", south: ./south}, route: {sql: " + places + "}", "}")
    assert made.changes(spark)["sinks.lake.accounts.south"] == "safe"
    made.orders("2.csv", *SECOND)
    made.run()
    ended = made.penstock("verify")
    assert ended.code == 0, str(ended)
    assert "lake: 1 row was decided for account south, which the pipeline file does not name. Nobody looked there." in ended.out


def test_what_is_put_back_goes_on_exactly(tmp_path: Path) -> None:
    made = project(tmp_path, COUNTED)
    made.change("GROUP BY shop", "GROUP BY amount")
    made.change("SELECT shop,", "SELECT amount AS shop,")
    made.orders("2.csv", *SECOND)
    refused = made.penstock("run", "--json")
    assert refused.last["error"]["kind"] == "PipelineChanged"
    assert refused.last["error"]["remedy"].startswith("Put it back;")
    made.file.write_text(COUNTED)
    made.run()
    assert made.rows() == [(1, 5), (7, 10), (8, 5)]


PAGE = Page("change")
[SALES] = PAGE.blocks("yaml")
MORE = "sinks:\n  more: {type: sqlite, url: 'sqlite:///more.db', table: totals, write: upsert, key: [shop]}\n"
EDITS = {
    "the interval of the trigger": ("processing_time: 10s", "processing_time: 1m"),
    "the size of batches (`maxFilesPerTrigger`)": ("maxFilesPerTrigger: 100", "maxFilesPerTrigger: 10"),
    "an expression that computes nothing new from the state, such as `sum(amount) * 100`": ("sum(amount)", "sum(amount) * 100"),
    "a longer delay of the watermark": ("delay: 10m", "delay: 1h"),
    "`spark.sql.shuffle.partitions`": ("sources:", f"spark: {{conf: {{{PARTITIONS}: 9}}}}\nsources:"),
    "a sink more": ("sinks:\n", MORE),
    "a sink less": ("  totals: {type: sqlite, url: 'sqlite:///sales.db'", "  other: {type: sqlite, url: 'sqlite:///other.db'"),
    "another path of the input": ("./incoming", "./elsewhere"),
    "another table of a sink that has rows": ("table: totals", "table: others"),
    "a column to group by, or another aggregate": ("shop, sum(amount) AS total", "shop, max(amount) AS total"),
    "a source more, less, renamed or of another kind": ("orders", "sold"),
}


def test_the_page_on_changes_says_what_check_says(spark: SparkSession, tmp_path: Path) -> None:
    made = Project(tmp_path, SALES)
    made.orders("1.csv", *FIRST)
    assert made.penstock("run", "--batches", "1", "--json").code == 0
    [committed] = tmp_path.rglob("checkpoint/commits")
    (committed / "0").exists() or (committed / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')  # Spark may be stopped before
    rows = re.findall(r"^\| (.*) \| (SAFE|SAFE WITH ACTION|BREAKS) \| (.*) \|$", PAGE.text, re.MULTILINE)
    assert [row[0] for row in rows] == list(EDITS)
    for change, verdict, _ in rows:
        made.file.write_text(SALES)
        made.change(*EDITS[change])
        found = made.changes(spark)
        worst = min(found.values(), key=["breaks", "safe_with_action", "safe"].index)
        assert worst == verdict.lower().replace(" ", "_"), (change, found)
        if change == "a sink less":  # from here on the batch is known to be in its sink
            made.file.write_text(SALES)
            assert made.penstock("recover").code == 0


def test_the_page_shows_what_check_prints(spark: SparkSession, tmp_path: Path) -> None:
    made = project(tmp_path, SALES.replace("processing_time: 10s", "available_now: true"))
    made.change("delay: 10m", "delay: 1h")
    made.change(
        "SELECT shop, sum(amount) AS total FROM orders GROUP BY shop",
        "SELECT amount AS shop, sum(amount) AS total FROM orders GROUP BY amount",
    )
    [command] = [line for line in PAGE.commands if line.startswith("penstock check sales.yaml")]
    ended = made.penstock(*command.split()[1:2])
    assert ended.code == 3, str(ended)
    [shown] = PAGE.blocks("text")
    for line in shown.splitlines():
        assert set(line) <= set("─") or re.sub(r" +", " ", line).strip() in re.sub(r" +", " ", ended.out), ended.out
