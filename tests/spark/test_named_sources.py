"""Sources that Spark knows by name: what `check` calls safe goes on exactly, and what it calls broken loses or repeats rows."""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock import Pipeline
from penstock.checkpoint.explanation import explain
from penstock.checkpoint.inspection import inspect_checkpoint
from penstock.checkpoint.verification import verify_checkpoint
from penstock.errors import Refused, SourcesChanged, Usage
from penstock.run.migrating import migrate_checkpoint
from penstock.run.preflight.change import Verdict
from penstock.run.rebuilding import rebuild_checkpoint
from penstock.run.start import seen_by_spark
from penstock.run.startable import preflight_of
from penstock.source.naming import naming
from tests.spark.streams import forget_commit, put, run

SAFE, ACTION, BREAKS = Verdict.SAFE, Verdict.SAFE_WITH_ACTION, Verdict.BREAKS
Rows = Counter[tuple[object, ...]]


class Orders:
    """A pipeline that unites some of the sources `a`, `b`, `c`, each of which reads the directory of its first letter."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        self.directory, self.spark = directory, spark
        self.checkpoint = directory / "state/checkpoint"
        self.expected: Rows = Counter()

    def put(self, *names: str) -> None:
        """A file more for each source, which is to be delivered."""
        for name in names:
            number = len(list((self.directory / "in" / name).glob("*.csv")))
            put(self.directory / "in" / name, f"{number}.csv", f"{number},{name}")
            self.expected[number, name] += 1

    def reading(self, *names: str, sql: str | None = None, named: bool = True) -> Pipeline:
        for name in names:
            (self.directory / "in" / name[0]).mkdir(parents=True, exist_ok=True)
        schema, options = "n INT, t STRING", {"maxFilesPerTrigger": 1}
        settings = {
            "pipeline": "orders",
            "home": str(self.directory / "state"),
            "named_sources": named,
            "sources": {
                name: {"format": "csv", "path": str(self.directory / "in" / name[0]), "schema": schema, "options": options}
                for name in names
            },
            "transform": {"sql": sql or " UNION ALL ".join(f"SELECT n, t FROM {name}" for name in names)},
            "sinks": {
                "table": {
                    "type": "sqlite",
                    "url": f"sqlite:///{self.directory}/orders.db",
                    "table": "orders",
                    "batch_column": "batch",
                }
            },
            "trigger": {"available_now": True},
        }
        file = self.directory / "orders.yaml"
        file.write_text(json.dumps(settings))
        return Pipeline.from_file(file)

    def verdicts(self, pipeline: Pipeline) -> Mapping[str, Verdict]:
        frame, sources = pipeline.frame(self.spark)
        found = preflight_of(pipeline.settings, pipeline.plan, seen=seen_by_spark(frame, tuple(sources)))
        return {change.part: change.verdict for change in found.changes if change.part != "transform.sql"}

    def deliver(self, pipeline: Pipeline) -> None:
        pipeline.start(self.spark).awaitTermination()
        assert self.rows() == self.expected
        assert pipeline.verify().ok

    def rows(self) -> Rows:
        with closing(sqlite3.connect(self.directory / "orders.db")) as connection:
            return Counter(connection.execute("SELECT n, t FROM orders"))

    def without_penstock(self, pipeline: Pipeline) -> Rows:
        """What Spark itself delivers from here on, on a copy of the checkpoint."""
        copy = self.directory / f"copy-{len(list(self.directory.glob('copy-*')))}"
        shutil.copytree(self.checkpoint, copy)
        found: Rows = Counter()

        def deliver(rows: DataFrame, _: int) -> None:
            found.update(tuple(row) for row in rows.collect())

        with naming(self.spark, named=True):
            run(pipeline.frame(self.spark)[0], copy, deliver)
        return found

    def refused(self, pipeline: Pipeline, match: str) -> None:
        with pytest.raises(Refused, match=match):
            pipeline.start(self.spark)
        assert self.rows() == self.expected


@pytest.fixture(name="orders")
def _orders(spark: SparkSession, tmp_path: Path) -> Orders:
    return Orders(tmp_path, spark)


def test_named_sources_are_reordered_added_and_taken_out(orders: Orders) -> None:
    orders.put("a", "b")
    orders.deliver(orders.reading("a", "b"))
    orders.put("a", "b")
    swapped = orders.reading("b", "a")
    assert orders.verdicts(swapped) == {}
    orders.deliver(swapped)
    forget_commit(orders.checkpoint, 1)
    orders.deliver(orders.reading("a", "b"))  # a batch comes again, with its sources in another order
    orders.put("a", "c", "c")
    more = orders.reading("c", "b", "a")
    assert orders.verdicts(more) == {"sources.c": SAFE}
    orders.deliver(more)
    orders.put("b")
    orders.deliver(orders.reading("c", "b", "a", "d"))  # of `d` there is nothing yet
    fewer = orders.reading("c", "a", "d")
    assert orders.verdicts(fewer) == {"sources.b": ACTION}
    orders.put("a", "d")
    orders.deliver(fewer)
    orders.put("c")
    orders.deliver(fewer)
    again = orders.reading("c", "a", "d", "b")
    assert orders.verdicts(again) == {"sources.b": BREAKS}
    assert orders.without_penstock(again) == Counter({(number, "b"): 1 for number in range(3)}), "all of it once more"
    orders.refused(again, "Earlier batches read a source b")


def test_a_source_under_another_name_would_come_twice(orders: Orders) -> None:
    orders.put("a", "b")
    orders.deliver(orders.reading("a", "b"))
    renamed = orders.reading("a", "bees")
    assert orders.verdicts(renamed) == {"sources.b": ACTION, "sources.bees": BREAKS}
    assert orders.without_penstock(renamed) == Counter({(0, "b"): 1})
    orders.refused(renamed, "Spark reads all of it again")
    shutil.rmtree(orders.directory / "state/runs")  # without a description of the last run
    assert orders.verdicts(renamed) == {"sources.b": ACTION, "sources.bees": BREAKS}


def test_a_planned_batch_needs_the_source_that_goes(orders: Orders) -> None:
    orders.put("a", "b")
    orders.deliver(orders.reading("a", "b"))
    forget_commit(orders.checkpoint, 0)
    fewer = orders.reading("a")
    assert orders.verdicts(fewer) == {"sources.b": BREAKS}
    assert orders.without_penstock(fewer) == Counter({(0, "a"): 1}), "the rows of b are lost"
    orders.refused(fewer, "Spark would run the batch without its rows")
    orders.deliver(orders.reading("a", "b"))
    orders.put("a")
    orders.deliver(orders.reading("a"))


JOIN = "SELECT l.n, l.t FROM {} AS l JOIN {} AS r ON l.n = r.n WHERE l.t = 'a' OR r.t = 'a'"


def test_sides_of_a_join_keep_their_order(orders: Orders) -> None:
    for name, count in (("a", 2), ("b", 1)):
        for number in range(count):
            put(orders.directory / "in" / name, f"{number}.csv", f"{number},{name}")
    orders.expected[0, "a"] += 1
    orders.deliver(orders.reading("a", "b", sql=JOIN.format("a", "b")))
    swapped = orders.reading("a", "b", sql=JOIN.format("b", "a"))
    assert orders.verdicts(swapped)["sources in their order"] is BREAKS
    put(orders.directory / "in/a", "9.csv", "1,again")
    assert orders.without_penstock(swapped) == Counter({(1, "a"): 1}), "a row of a was joined with another one of a"
    orders.refused(swapped, "has state in the order a, b")


def test_places_become_names(orders: Orders) -> None:
    orders.put("a", "b")
    orders.deliver(orders.reading("b", "a", named=False))
    forget_commit(orders.checkpoint, 0)
    named = orders.reading("a", "b", sql="SELECT * FROM b UNION ALL SELECT * FROM a")
    assert orders.verdicts(named) == {"named_sources": ACTION}
    orders.refused(named, "has its sources by their place")
    planned = migrate_checkpoint(named.settings, named.plan, yes=False)
    assert (planned.act.next_batch_id, planned.done) == (0, False)
    with pytest.raises(SourcesChanged, match="decided with source b, which the pipeline file does not have"):
        migrate_checkpoint((other := orders.reading("a")).settings, other.plan, yes=True)
    named = orders.reading("a", "b")
    assert migrate_checkpoint(named.settings, named.plan, yes=True).done
    assert orders.without_penstock(named) == orders.expected, "the batch that was not committed"
    orders.deliver(named)
    orders.put("a", "b", "c")
    orders.deliver(orders.reading("c", "a", "b"))
    unnamed = orders.reading("c", "a", "b", named=False)
    assert orders.verdicts(unnamed)["named_sources"] is BREAKS
    with pytest.raises(StreamingQueryException, match="All sources should be named"):
        run(unnamed.frame(orders.spark)[0], orders.checkpoint, lambda *_: None)
    orders.refused(unnamed, "named_sources changed from true to false")
    orders.put("a")
    orders.deliver(orders.reading("c", "a", "b"))


def test_the_tools_know_a_checkpoint_with_names(orders: Orders) -> None:
    orders.put("a")
    orders.deliver(orders.reading("a", "b"))
    orders.put(*["a", "b"] * 3)
    pipeline = orders.reading("b", "a")
    orders.deliver(pipeline)
    found = inspect_checkpoint(str(orders.checkpoint))
    assert not found.anomalies
    assert {source.key: source.kind for source in found.sources} == {"a": "files", "b": "files"}
    assert {line.split()[1] for line in explain(found).input} == {"a:", "b:"}
    assert verify_checkpoint(str(orders.checkpoint)).ok
    pipeline.create_savepoint("before")
    orders.put("b")
    orders.deliver(pipeline)
    pipeline.restore_savepoint("before", yes=True, reason="a test")
    orders.deliver(pipeline)
    pipeline.rewind(to_batch=1, yes=True, reason="a test")
    assert len(orders.rows()) < len(orders.expected)
    orders.deliver(pipeline)
    shutil.rmtree(orders.checkpoint)
    assert rebuild_checkpoint(pipeline, session=lambda: orders.spark, yes=True).done
    orders.put("a", "b", "c")
    orders.deliver(orders.reading("a", "c", "b"))


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM a UNION ALL SELECT * FROM a", "SELECT x.n, x.t FROM a AS x JOIN a AS y ON x.n = y.n"]
)
def test_a_named_source_is_read_in_one_place(orders: Orders, sql: str) -> None:
    orders.put("a")
    pipeline = orders.reading("a", sql=sql)
    for act in (pipeline.check, pipeline.start):
        with pytest.raises(Usage, match="reads source 'a' in more than one place"):
            act(orders.spark)
