"""Delta and Iceberg tables: Penstock's sinks against the formats' own libraries in the driver, and against plain Parquet files.

The libraries are called for each micro-batch by `foreachBatch`, as their users do: the driver holds the whole batch, and a batch
that comes twice is written twice.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from bench.content import Fingerprint, fingerprint, of_directories
from bench.inputs import COLUMNS, Batches, expressions, numbers, stream, write_input
from bench.measuring import Bench, require_content
from bench.queries import batchwise, run_available, trigger_ms
from bench.result import PENSTOCK, Case, Table

ROWS, FILES, ROUNDS = 4_000_000, 8, 3
IN_TABLE, BY_KEY = 1_000_000, 100_000
PARQUET = "Spark's Parquet files"
TITLES = {"delta": "Delta", "iceberg": "Iceberg"}

Way = Callable[["Target"], Callable[[Any], Any]]
"""Given a table that is not there yet, what starts a query of a writer."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a table of one format goes, below an empty directory."""

    kind: str
    root: Path

    @property
    def home(self) -> Path:
        """Of Penstock, or of a peer's checkpoint."""
        return self.root / "home"

    @property
    def files(self) -> Path:
        """The table's directory; that of a peer's Parquet files."""
        return self.root / "shop" / "events"

    def sink(self, **settings: Any) -> Any:
        """What Penstock is told."""
        if self.kind == "delta":
            return penstock.Delta(path=self.files, **settings)
        return penstock.Iceberg(catalog=self._catalog_url, table="shop.events", warehouse=self.root, **settings)

    def catalog(self) -> SqlCatalog:
        """With the namespace, as a user of pyiceberg opens it."""
        catalog = SqlCatalog("default", uri=self._catalog_url, warehouse=f"file://{self.root}")
        catalog.create_namespace_if_not_exists("shop")
        return catalog

    def found(self, spark: SparkSession, *, parquet: bool) -> Fingerprint:
        """The content: the files that the log or the catalog lists, read by Spark."""
        if parquet:
            return of_directories(spark, [self.files])
        if self.kind == "delta":
            listed = DeltaTable(self.files).file_uris()
        else:
            listed = [task.file.file_path for task in self.catalog().load_table("shop.events").scan().plan_files()]
        return fingerprint(spark.read.schema(COLUMNS).parquet(*listed))

    @property
    def _catalog_url(self) -> str:
        return f"sqlite:///{self.root}/catalog.db"


def measure(bench: Bench) -> Iterator[Table]:
    """One large batch, and one by key."""
    yield _appended(bench)
    yield _merged(bench)


# --- one large batch


def _appended(bench: Bench) -> Table:
    rows = bench.sized(ROWS, 1_000)
    write_input(bench.spark, bench.scratch / "input", rows=rows, columns=expressions(), files=FILES)
    expected = fingerprint(bench.spark.read.parquet(str(bench.scratch / "input")))
    return Table(
        name="append",
        title=f"{ROWS:,} rows x 7 columns into a table in a directory, one batch",
        unit="s",
        cases=tuple(_append_case(bench, kind, rows, expected) for kind in TITLES),
        amounts="rows",
        note="The whole query from start to end. Spark's Parquet files have no log that lists them.",
    )


def _append_case(bench: Bench, kind: str, rows: int, expected: Fingerprint) -> Case:
    def seconds(name: str, way: Way) -> float:
        target = _emptied(kind, bench.scratch / "table")
        frame = stream(bench, bench.scratch / "input")
        started = time.perf_counter()
        run_available(frame, way(target))
        took = time.perf_counter() - started
        require_content(target.found(bench.spark, parquet=name == PARQUET), expected, writer=name)
        return took

    own = {"delta": {"`write_deltalake`": _write_deltalake}, "iceberg": {"`table.append`": _append}}[kind]
    ways: Mapping[str, Way] = {PENSTOCK: _penstock, PARQUET: _parquet, **own}
    return Case(name=TITLES[kind], figures=bench.in_rounds(ways, seconds, warm_up=kind == "delta", rounds=ROUNDS), amount=rows)


def _penstock(target: Target, **settings: Any) -> "Callable[[Any], Any]":
    return penstock.Delivery("bench", home=target.home, sinks={"table": target.sink(**settings)}).start


def _parquet(target: Target) -> "Callable[[Any], Any]":
    return batchwise(lambda rows, _: rows.write.mode("append").parquet(str(target.files)), target.home)


def _write_deltalake(target: Target) -> "Callable[[Any], Any]":
    return batchwise(lambda rows, _: write_deltalake(target.files, rows.toArrow(), mode="append"), target.home)


def _append(target: Target) -> "Callable[[Any], Any]":
    def write(rows: DataFrame, batch_id: int) -> None:
        batch = rows.toArrow()
        target.catalog().create_table_if_not_exists("shop.events", batch.schema).append(batch)

    return batchwise(write, target.home)


# --- by key


def _merged(bench: Bench) -> Table:
    source = _Input(
        root=bench.scratch / "keyed",
        rows=bench.sized(BY_KEY, 100),
        in_table=bench.sized(IN_TABLE, 1_000),
        batches=bench.sized(4, 2),
        warm_up=1,
    )
    source.write(partial(source.table, bench.spark))
    return Table(
        name="merge",
        title=f"{BY_KEY:,} rows by key into a table of {IN_TABLE:,} (whole triggers)",
        unit="ms",
        cases=tuple(_merge_case(bench, kind, source) for kind in TITLES),
        amounts="rows",
        note="Every second row replaces one, anywhere in the table. A round is the median batch of a query that fills it first.",
    )


@dataclass(frozen=True, kw_only=True)
class _Input(Batches):
    """The first batch fills the table; the others have `rows` rows, of which every second one replaces one that is there."""

    in_table: int

    def table(self, spark: SparkSession, first: int, end: int) -> "pa.Table":
        """The rows of those numbers, or those with which the table begins."""
        return (self._filling(spark) if first == 0 else self._changing(spark, first, end)).toArrow()

    def expected(self, spark: SparkSession) -> DataFrame:
        """The last row of each key."""
        changed = self._changing(spark, self.rows, self.rows * self.batches)
        newest = changed.groupBy("id").agg(F.max("k").alias("k")).join(changed, ["id", "k"]).select(*changed.columns)
        return newest.unionByName(self._filling(spark).join(newest, "id", "left_anti"))

    def _filling(self, spark: SparkSession) -> DataFrame:
        return numbers(spark.range(self.in_table)).withColumn("k", F.lit(-1))

    def _changing(self, spark: SparkSession, first: int, end: int) -> DataFrame:
        """`k` grows from batch to batch."""
        key = f"IF(id % 2 = 0, id * 7919 % {self.in_table}, {self.in_table} + id)"
        changed = numbers(spark.range(first, end)).withColumn("k", F.expr(f"CAST(id / {self.rows} AS INT)"))
        return changed.withColumn("id", F.expr(key))


def _merge_case(bench: Bench, kind: str, source: _Input) -> Case:
    expected = fingerprint(source.expected(bench.spark))

    def batch_ms(name: str, way: Way) -> float:
        target = _emptied(kind, bench.scratch / "table")
        query = run_available(stream(bench, source.root, files_per_batch=1), way(target))
        require_content(target.found(bench.spark, parquet=False), expected, writer=name)
        return trigger_ms(query, warm_up=source.warm_up)

    own = {"delta": {"`merge` of deltalake": _merge}, "iceberg": {"read, join, `overwrite`": _overwrite}}[kind]
    ways: Mapping[str, Way] = {PENSTOCK: partial(_penstock, write="upsert", key=("id",)), **own}
    return Case(name=TITLES[kind], figures=bench.in_rounds(ways, batch_ms, rounds=ROUNDS), amount=source.rows)


def _merge(target: Target) -> "Callable[[Any], Any]":
    def write(rows: DataFrame, batch_id: int) -> None:
        batch = rows.toArrow()
        if not DeltaTable.is_deltatable(str(target.files)):
            return write_deltalake(target.files, batch)
        merging = DeltaTable(target.files).merge(batch, "t.id = s.id", source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()
        return None

    return batchwise(write, target.home)


def _overwrite(target: Target) -> "Callable[[Any], Any]":
    def write(rows: DataFrame, batch_id: int) -> None:
        batch = rows.toArrow()
        table = target.catalog().create_table_if_not_exists("shop.events", batch.schema)
        there = table.scan().to_arrow()
        if not len(there):
            return table.append(batch)
        table.overwrite(pa.concat_tables([there.join(batch, "id", join_type="left anti").cast(batch.schema), batch]))
        return None

    return batchwise(write, target.home)


def _emptied(kind: str, root: Path) -> Target:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return Target(kind=kind, root=root)
