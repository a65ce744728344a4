"""A sink that is added later is given the batches before it, killed at every step, and takes part from then on."""

import sqlite3
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

import penstock
from tests.spark.streams import put

pytestmark = pytest.mark.spark

FILE = """
pipeline: numbers
home: home
trigger: {{available_now: true}}
sources:
  numbers:
    format: csv
    path: in
    schema: "n INT, text STRING"
    options: {{maxFilesPerTrigger: 1}}
transform: {{sql: "{sql}"}}
sinks:
  first: {{type: sqlite, url: "sqlite:///first.db", table: numbers}}
{sinks}"""
SQL = "SELECT n, text, n % 2 AS half FROM numbers WHERE n > 0"
LATER = """\
  table: {type: sqlite, url: "sqlite:///later.db", table: numbers}
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


class KilledError(BaseException):
    """Stands for a SIGKILL: nothing of Penstock catches it."""


class Place:
    """A directory with a pipeline whose source gets numbers in files, one batch each."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark, self.sent = root, spark, 0

    def pipeline(self, sinks: str = "", sql: str = SQL) -> penstock.Pipeline:
        (self.root / "numbers.yaml").write_text(FILE.format(sinks=sinks, sql=sql))
        return penstock.Pipeline.from_file(self.root / "numbers.yaml")

    def send(self, files: int) -> None:
        for _ in range(files):
            self.sent += 1
            lines = [f"{n},word {n}" for n in range(self.sent * 10 - 12, self.sent * 10)]
            put(self.root / "in", f"part {self.sent} [a].csv", *lines)

    def run(self, pipeline: penstock.Pipeline) -> None:
        pipeline.start(self.spark).awaitTermination()

    def table(self, name: str = "later") -> Rows:
        with sqlite3.connect(self.root / f"{name}.db") as connection:
            found: Rows = Counter(connection.execute("SELECT n, text, half FROM numbers"))
        connection.close()
        return found

    def lake(self) -> Rows:
        rows: Rows = Counter()
        for name in ("even", "odd"):
            table = ds.dataset(self.root / "lake" / name, format="parquet").to_table()
            assert table.column_names == ["n", "half"]
            rows += Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return rows


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def lake_rows(rows: Rows) -> Rows:
    return Counter({(n, half): count for (n, _, half), count in rows.items() if n != 4})


def test_a_sink_that_was_added_has_the_past_once_and_goes_on(place: Place) -> None:
    place.send(3)
    place.run(place.pipeline())
    pipeline = place.pipeline(LATER + LAKE)
    assert pipeline.backfill("table", place.spark, dry_run=True).batches == 3
    done = pipeline.backfill("table", place.spark)
    assert (done.batches, done.first_batch_id, done.last_batch_id, done.joins_at) == (3, 0, 2, 3)
    assert done.totals.rows == done.rows == place.table("first").total()
    assert place.table() == place.table("first")
    assert pipeline.backfill("lake", place.spark).done
    assert place.lake() == lake_rows(place.table("first"))
    assert pipeline.verify().ok
    again = pipeline.backfill("lake", place.spark)
    assert (again.batches, again.generation) == (0, None)
    place.send(2)
    place.run(pipeline)
    assert place.table() == place.table("first")
    assert place.lake() == lake_rows(place.table("first"))
    assert pipeline.verify().ok
