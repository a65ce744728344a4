"""Tables in databases: Penstock's sinks against what users write otherwise, which is at-least-once.

Spark's own JDBC writer is called for each micro-batch by `foreachBatch`, as Spark's documentation shows it; for Cassandra it is
the loop around the driver's `execute_concurrent` that its documentation shows.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from bench.content import Fingerprint, fingerprint, names_in
from bench.servers import those_there
from bench.session import COLUMNS, WIDE, numbers, stream, write_checkpoints_in_process
from bench.table import Table, median, ratio
from bench.target import NAMED, SEVEN, TYPES, Target, new_target
from bench.turns import in_turns

NAMES = {"postgres": "PostgreSQL", "mysql": "MariaDB", "cassandra": "Cassandra"}
ROUNDS = 3
KEYS = 300_000
_BEHIND = "Penstock, `publish_behind`"

Way = Callable[[Target, Path], Callable[[Any], Any]]
"""Given a table and a home, what starts a query of a writer."""


def measure(spark: SparkSession, scratch: Path) -> Iterator[Table]:
    """Large batches appended, the same by key, and small batches, for each database; each told when it is measured."""
    write_checkpoints_in_process(spark)
    large = _Input(root=scratch / "large", rows=100_000, batches=14, warm_up=6)  # the JVM has compiled what it runs by then
    wide = _Input(root=scratch / "wide", rows=100_000, batches=14, warm_up=6, wide=True)
    keyed = _Input(root=scratch / "keyed", rows=100_000, batches=8, warm_up=2, keyed=True)
    fewer = _Input(root=scratch / "fewer", rows=20_000, batches=6, warm_up=2)  # the loop takes a minute for 100,000
    small = _Input(root=scratch / "small", rows=1_000, batches=40, warm_up=12)
    ours, keyed_ours = {"Penstock": _penstock("append")}, {"Penstock": _penstock("upsert", "id")}
    ours[_BEHIND], keyed_ours[_BEHIND] = _penstock("append", behind=True), _penstock("upsert", "id", behind=True)
    jdbc = {**ours, "JDBC": _jdbc, "JDBC, rewriting batches": _rewriting}
    merge = {**keyed_ours, "JDBC into a table, then one statement": _merging}
    loop = {"Penstock": _penstock("append", "id"), "a loop of `execute_concurrent`": _concurrent}
    asked: dict[str, list[tuple[_Input, dict[str, Way]]]] = {
        "postgres": [(large, jdbc), (wide, jdbc), (keyed, merge), (small, jdbc)],
        "mysql": [(large, jdbc), (wide, jdbc), (keyed, merge), (small, jdbc)],
        "cassandra": [(fewer, loop), (small, loop)],
    }
    for source in (large, wide, keyed, fewer, small):
        source.write(spark)
    for kind in those_there(NAMES):
        for source, ways in asked[kind]:
            yield _compared(spark, source, kind, ways)


@dataclass(frozen=True, kw_only=True)
class _Input:
    """Files of one batch each. With `keyed`, ids come back: a batch has none twice, and three large batches have them all."""

    root: Path
    rows: int
    batches: int
    warm_up: int
    keyed: bool = False
    wide: bool = False

    @property
    def columns(self) -> str:
        """As DDL."""
        return WIDE if self.wide else COLUMNS

    def fingerprint(self, frame: DataFrame) -> Fingerprint:
        """Over all columns."""
        return fingerprint(frame, names_in(self.columns))

    def write(self, spark: SparkSession) -> None:
        """In the order of their times."""
        self.root.mkdir(parents=True)
        for batch in range(self.batches):
            file = self.root / f"{batch:03}.parquet"
            rows = self._shaped(numbers(spark.range(batch * self.rows, (batch + 1) * self.rows), wide=self.wide))
            pq.write_table(rows.toArrow(), file)
            os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))

    def expected(self, spark: SparkSession) -> DataFrame:
        """What must be in the table: with keys the last row of each."""
        every = numbers(spark.range(self.rows * self.batches), wide=self.wide)
        if not self.keyed:
            return every
        newest = every.groupBy(F.expr(_KEY)).agg(F.max("id").alias("id")).select("id")
        return self._shaped(every.join(newest, "id"))

    def _shaped(self, frame: DataFrame) -> DataFrame:
        return frame.withColumn("id", F.expr(_KEY)) if self.keyed else frame


def _compared(spark: SparkSession, source: _Input, kind: str, ways: "Mapping[str, Way]") -> Table:
    expected = source.fingerprint(source.expected(spark))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for name, way in in_turns(ways, ROUNDS):
        target = new_target(kind, keyed=source.keyed, wide=source.wide)
        taken[name] += _batches_ms(spark, source, way(target, source.root.parent / "home"))
        assert source.fingerprint(target.found(spark, source.columns)) == expected, name
    ours = median(taken["Penstock"])
    shown = [
        [name, f"{median(times):.0f}", f"{source.rows / median(times) * 1000:,.0f}", ratio(median(times) / ours)]
        for name, times in taken.items()
    ]
    return Table(
        f"{source.rows:,} rows x {9 if source.wide else 7} columns a batch into {NAMES[kind]}, "
        f"{'upsert' if source.keyed else 'append'}, milliseconds per batch (median of whole triggers)",
        ["writer", "milliseconds", "rows a second", "against Penstock"],
        shown,
        f"{ROUNDS} rounds in turns. All but Penstock are at-least-once.",
    )


def _batches_ms(spark: SparkSession, source: _Input, start: "Callable[[Any], Any]") -> list[float]:
    frame = stream(spark, source.root, files_per_batch=1, columns=source.columns)
    query = start(frame.writeStream.trigger(availableNow=True))
    query.awaitTermination()
    return [each.durationMs["triggerExecution"] for each in query.recentProgress if each.batchId >= source.warm_up]


# --- the writers


def _penstock(write: str, *key: str, behind: bool = False) -> Way:
    sinks = {"postgres": penstock.Postgres, "mysql": penstock.MySQL, "cassandra": penstock.Cassandra}

    def way(target: Target, home: Path) -> "Callable[[Any], Any]":
        shutil.rmtree(home, ignore_errors=True)
        table = sinks[target.kind](url=target.url, table="events", write=write, **({"key": key} if key else {}))
        return penstock.Delivery("bench", home=home, sinks={"events": table}, publish_behind=behind).start

    return way


def _jdbc(target: Target, home: Path, *, rewrite: bool = False) -> "Callable[[Any], Any]":
    def write(rows: DataFrame, batch_id: int) -> None:
        rows.write.format("jdbc").options(**target.options("events", rewrite=rewrite)).mode("append").save()

    return _batchwise(write, home)


def _rewriting(target: Target, home: Path) -> "Callable[[Any], Any]":
    return _jdbc(target, home, rewrite=True)


def _merging(target: Target, home: Path) -> "Callable[[Any], Any]":
    """Into a table that is emptied first, and from there by the statement that the database has for it."""
    target.execute(f"CREATE TABLE staged ({TYPES[target.kind]})")
    staged = {**target.options("staged", rewrite=True), "truncate": "true"}

    def write(rows: DataFrame, batch_id: int) -> None:
        rows.write.format("jdbc").options(**staged).mode("overwrite").save()
        target.execute(_MERGE[target.kind])

    return _batchwise(write, home)


def _concurrent(target: Target, home: Path) -> "Callable[[Any], Any]":
    from cassandra.concurrent import execute_concurrent_with_args

    def start(writer: Any) -> Any:
        with target.session() as session:
            statement = session.prepare(f"INSERT INTO events ({NAMED}) VALUES ({', '.join('?' * len(SEVEN))})")

            def write(rows: DataFrame, batch_id: int) -> None:
                execute_concurrent_with_args(session, statement, [tuple(row) for row in rows.collect()], concurrency=100)

            query = _batchwise(write, home)(writer)
            query.awaitTermination()
        return query

    return start


def _batchwise(write: "Callable[[DataFrame, int], None]", home: Path) -> "Callable[[Any], Any]":
    shutil.rmtree(home, ignore_errors=True)
    return lambda writer: writer.foreachBatch(write).option("checkpointLocation", str(home)).start()


_KEY = f"id * 7919 % {KEYS}"
_OTHERS = [name for name, _ in SEVEN if name != "id"]
_MERGE = {
    "postgres": f"INSERT INTO events ({NAMED}) SELECT {NAMED} FROM staged ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _OTHERS),
    "mysql": f"INSERT INTO events ({NAMED}) SELECT {NAMED} FROM staged ON DUPLICATE KEY UPDATE "
    + ", ".join(f"{name} = VALUES({name})" for name in _OTHERS),
}
