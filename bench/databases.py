"""Tables in databases: Penstock's sinks against what users write otherwise, which is at-least-once.

Spark's own JDBC writer is called for each micro-batch by `foreachBatch`, as Spark's documentation shows it; for Cassandra it is
the loop around the driver's `execute_concurrent` that its documentation shows.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from bench.content import fingerprint
from bench.inputs import COLUMNS, WIDE, Batches, numbers, stream
from bench.lanes import IN_TASKS, Publisher
from bench.measuring import Bench, require_content
from bench.queries import batchwise, run_available, trigger_ms
from bench.result import PENSTOCK, Case, Table
from bench.servers import those_there
from bench.target import NAMED, SEVEN, TYPES, Target, new_target

NAMES = {"postgres": "PostgreSQL", "mysql": "MariaDB", "cassandra": "Cassandra"}
BEHIND = "Penstock, `publish_behind`"

Way = Callable[[Target, Path], Callable[[Any], Any]]
"""Given a table and a home, what starts a query of a writer."""


def measure(bench: Bench, kind: str) -> Iterator[Table]:
    """Large batches appended, the same by key, and small batches, into one database."""
    if not those_there({kind: NAMES[kind]}):
        return
    cases = _cases(bench, kind)
    for source, _ in cases:
        source.write(partial(source.table, bench.spark))
    yield Table(
        name="batches",
        title=f"Batches into {NAMES[kind]} (whole triggers)",
        unit="ms",
        cases=tuple(_case(bench, kind, source, ways, first=source is cases[0][0]) for source, ways in cases),
        ours=(PENSTOCK, BEHIND, IN_TASKS),
        amounts="rows",
        note="Penstock's figures are exactly once, those of all peers at least once. A round is the median batch of a "
        "query. Upserts replace rows that are there. On the executors the batch is published by two tasks.",
    )


def _cases(bench: Bench, kind: str) -> "list[tuple[_Input, Mapping[str, Way]]]":
    large = _input(bench, "large", 100_000, batches=3)
    wide = _input(bench, "wide", 100_000, batches=3, wide=True)
    keyed = _input(bench, "keyed", 50_000, batches=4, warm_up=2, keyed=True)
    fewer = _input(bench, "fewer", 10_000, batches=3)  # the loop takes a minute for 100,000
    small = _input(bench, "small", 1_000, batches=8, warm_up=3)
    jdbc = {**_ours("append"), "JDBC": _jdbc, "JDBC, rewriting batches": _rewriting}
    merge = {**_ours("upsert", "id"), "JDBC into a table, then one statement": _merging}
    loop = {PENSTOCK: _penstock("append", "id"), "a loop of `execute_concurrent`": _concurrent}
    if kind == "cassandra":
        return [(fewer, {**loop, IN_TASKS: _penstock("append", "id", on="executors")}), (small, loop)]
    return [(large, jdbc), *([(wide, jdbc)] if kind == "postgres" else []), (keyed, merge), (small, jdbc)]


def _input(
    bench: Bench, folder: str, rows: int, *, batches: int, warm_up: int = 1, keyed: bool = False, wide: bool = False
) -> "_Input":
    return _Input(
        root=bench.scratch / folder,
        name=f"{rows:,} rows x {9 if wide else 7} columns, {'upsert' if keyed else 'append'}",
        rows=bench.sized(rows, 100),
        batches=bench.sized(batches, 3),
        warm_up=bench.sized(warm_up, 1),
        keyed=keyed,
        wide=wide,
    )


@dataclass(frozen=True, kw_only=True)
class _Input(Batches):
    """With `keyed`, two batches have all the ids, each once, and those of later batches are there already."""

    name: str
    keyed: bool = False
    wide: bool = False

    @property
    def columns(self) -> str:
        """As DDL."""
        return WIDE if self.wide else COLUMNS

    def table(self, spark: SparkSession, first: int, end: int) -> "pa.Table":
        """The rows of those numbers."""
        return self._shaped(numbers(spark.range(first, end), wide=self.wide)).toArrow()

    def expected(self, spark: SparkSession) -> DataFrame:
        """What must be in the table: with keys the last row of each."""
        every = numbers(spark.range(self.rows * self.batches), wide=self.wide)
        if not self.keyed:
            return every
        newest = every.groupBy(F.expr(self._key)).agg(F.max("id").alias("id")).select("id")
        return self._shaped(every.join(newest, "id"))

    @property
    def _key(self) -> str:
        return f"id * 7919 % {2 * self.rows}"

    def _shaped(self, frame: DataFrame) -> DataFrame:
        return frame.withColumn("id", F.expr(self._key)) if self.keyed else frame


def _case(bench: Bench, kind: str, source: _Input, ways: "Mapping[str, Way]", *, first: bool) -> Case:
    expected = fingerprint(source.expected(bench.spark))

    def batch_ms(name: str, way: Way) -> float:
        target = new_target(kind, keyed=source.keyed, wide=source.wide)
        frame = stream(bench, source.root, files_per_batch=1, columns=source.columns)
        if name == IN_TASKS:
            frame = frame.repartition(2)  # a batch of one file is one piece, which one task publishes
        query = run_available(frame, way(target, bench.scratch / "home"))
        require_content(fingerprint(target.found(bench.spark, source.columns)), expected, writer=name)
        target.drop()
        return trigger_ms(query, warm_up=source.warm_up)

    return Case(name=source.name, figures=bench.in_rounds(ways, batch_ms, warm_up=first), amount=source.rows)


# --- the writers


def _ours(write: str, *key: str) -> Mapping[str, Way]:
    return {PENSTOCK: _penstock(write, *key), BEHIND: _penstock(write, *key, behind=True)}


def _penstock(write: str, *key: str, behind: bool = False, on: Publisher = "driver") -> Way:
    sinks = {"postgres": penstock.PostgreSQL, "mysql": penstock.MySQL, "cassandra": penstock.Cassandra}

    def way(target: Target, home: Path) -> "Callable[[Any], Any]":
        table = sinks[target.kind](url=target.url, table="events", write=write, **({"key": key} if key else {}))
        return penstock.Delivery(
            "bench", home=_emptied(home), sinks={"events": table}, publish_behind=behind, publish_on=on
        ).start

    return way


def _jdbc(target: Target, home: Path, *, rewrite: bool = False) -> "Callable[[Any], Any]":
    def write(rows: DataFrame, batch_id: int) -> None:
        rows.write.format("jdbc").options(**target.options("events", rewrite=rewrite)).mode("append").save()

    return batchwise(write, _emptied(home))


def _rewriting(target: Target, home: Path) -> "Callable[[Any], Any]":
    return _jdbc(target, home, rewrite=True)


def _merging(target: Target, home: Path) -> "Callable[[Any], Any]":
    """Into a table that is emptied first, and from there by the statement that the database has for it."""
    target.execute(f"CREATE TABLE staged ({TYPES[target.kind]})")
    staged = {**target.options("staged", rewrite=True), "truncate": "true"}

    def write(rows: DataFrame, batch_id: int) -> None:
        rows.write.format("jdbc").options(**staged).mode("overwrite").save()
        target.execute(_MERGE[target.kind])

    return batchwise(write, _emptied(home))


def _concurrent(target: Target, home: Path) -> "Callable[[Any], Any]":
    from cassandra.concurrent import execute_concurrent_with_args

    def start(writer: Any) -> Any:
        with target.session() as session:
            statement = session.prepare(f"INSERT INTO events ({NAMED}) VALUES ({', '.join('?' * len(SEVEN))})")

            def write(rows: DataFrame, batch_id: int) -> None:
                execute_concurrent_with_args(session, statement, [tuple(row) for row in rows.collect()], concurrency=100)

            query = batchwise(write, _emptied(home))(writer)
            query.awaitTermination()
        return query

    return start


def _emptied(home: Path) -> Path:
    shutil.rmtree(home, ignore_errors=True)
    return home


_OTHERS = [name for name, _ in SEVEN if name != "id"]
_MERGE = {
    "postgres": f"INSERT INTO events ({NAMED}) SELECT {NAMED} FROM staged ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _OTHERS),
    "mysql": f"INSERT INTO events ({NAMED}) SELECT {NAMED} FROM staged ON DUPLICATE KEY UPDATE "
    + ", ".join(f"{name} = VALUES({name})" for name in _OTHERS),
}
