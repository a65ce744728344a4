"""A pipeline of one kind of query and one kind of state store, on directories of its own, and what it must have delivered."""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from tests.crash.commandline import Ended, penstock
from tests.spark import rewound_jobs
from tests.spark.stateful import PROVIDER, ROCKSDB
from tests.spark.streams import everything, put

Rows = Counter[tuple[object, ...]]

FILE = """\
pipeline: {name}
home: ./{name}
sources:
{sources}
transform: {{python: "tests.spark.rewound_jobs:{kind}"}}
sinks:
  lake:
    type: parquet
    accounts: {{even: ./{name}-lake/even, odd: ./{name}-lake/odd}}
    route: {{sql: "if(n % 2 = 0, 'even', 'odd')"}}
  table: {{type: sqlite, url: "sqlite:///{name}.db", table: numbers, batch_column: written_by}}
trigger: {{available_now: true}}
"""
SOURCE = """\
  {name}:
    format: csv
    path: {folder}
    schema: "n INT, at TIMESTAMP"
    options: {{maxFilesPerTrigger: 1}}
    watermark: {{column: at, delay: 90s}}"""
_BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
STORES: Mapping[str, Mapping[str, str]] = {
    "hdfs": {},
    "rocksdb": {PROVIDER: ROCKSDB, CHANGELOG: "false"},
    "changelog": {PROVIDER: ROCKSDB, CHANGELOG: "true"},
}
SETTINGS = {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.minBatchesToRetain": "120"}


@contextmanager
def settings(spark: SparkSession, store: str) -> Iterator[None]:
    """The session keeps state in such a store, of so many batches."""
    given = {**SETTINGS, **STORES[store]}
    before = {key: spark.conf.get(key, None) for key in given}
    for key, value in given.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@dataclass(frozen=True)
class Machine:
    """The files of a machine below `root`, in which the pipeline is; its input is elsewhere."""

    root: Path
    source: Path
    kind: str

    @property
    def folders(self) -> tuple[str, ...]:
        return ("left", "right") if self.kind == "joined" else ("left",)

    def write(self, name: str) -> str:
        sources = "\n".join(SOURCE.format(name=folder, folder=self.source / folder) for folder in self.folders)
        (self.root / f"{name}.yaml").write_text(FILE.format(name=name, sources=sources, kind=self.kind))
        return f"{name}.yaml"

    def feed(self, files: int) -> None:
        """One minute a file; each has rows of the one before again, one key of its own, and few with a partner."""
        for folder in self.folders:
            first = len(list((self.source / folder).glob("*"))) if (self.source / folder).exists() else 0
            for number in range(first, first + files):
                rows = [(number, 0, 1), (number, 0, 2), (9, 0, 5), (8, 0, 30), (9, -1, 5)][: 5 if folder == "left" else 3]
                lines = (
                    f"{n},{_BEGIN + timedelta(minutes=number + minute, seconds=second):%Y-%m-%dT%H:%M:%SZ}"
                    for n, minute, second in rows
                )
                put(self.source / folder, f"{number:04}.csv", *lines)

    def penstock(self, *words: str, code: int = 0) -> Ended:
        ended = penstock(*words, directory=self.root)
        assert ended.code == code, f"{words}: {ended}"
        return ended

    def run(self, name: str, *words: str) -> int:
        """Deliver everything; the newest batch."""
        self.penstock("run", f"{name}.yaml", "--json", *words)
        return int(self.penstock("status", f"{name}.yaml", "--json").last["last_batch_id"])

    def lake(self, name: str) -> Rows:
        found: Rows = Counter()
        for account in ("even", "odd"):
            place = self.root / f"{name}-lake" / account
            if place.exists():
                columns = ds.dataset(place, format="parquet").to_table().select(["n", "many"]).columns
                found += Counter(zip(*(column.to_pylist() for column in columns), strict=True))
        return found

    def table(self, name: str) -> Rows:
        with closing(sqlite3.connect(self.root / f"{name}.db")) as connection:
            return Counter(connection.execute("SELECT n, many FROM numbers"))

    def assert_exact(self, name: str, expected: Rows) -> None:
        assert (self.lake(name), self.table(name)) == (expected, expected)
        self.penstock("verify", f"{name}.yaml")

    def expected(self, spark: SparkSession) -> Rows:
        """What Spark alone delivers of all input, in as few batches as it takes."""
        sources = {
            folder: spark.readStream.schema("n INT, at TIMESTAMP")
            .csv(str(self.source / folder))
            .withWatermark("at", "90 seconds")
            for folder in self.folders
        }
        scratch = self.source / "alone"
        shutil.rmtree(scratch, ignore_errors=True)
        return everything(getattr(rewound_jobs, self.kind)(spark, sources), scratch)
