"""Tables in databases: the postgres and mysql sinks against Spark's own JDBC writer, which is at-least-once.

The JDBC drivers come from Maven, for this bench only; for MariaDB it is its own, since MySQL's stores no parts of a second there.
Peers write each micro-batch by `foreachBatch`, as Spark's documentation shows it. The servers are those of the tests: on this
machine, with fsync, sharing its cores.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.servers import mysql, postgres
from tests.servers.fixtures import server

import penstock
from bench.content import fingerprint
from bench.servers import those_there
from bench.session import COLUMNS, numbers, stream
from bench.table import Table, median, ratio

PACKAGES = ("org.postgresql:postgresql:42.7.8", "org.mariadb.jdbc:mariadb-java-client:2.7.12")
DRIVERS = {"postgres": "org.postgresql.Driver", "mysql": "org.mariadb.jdbc.Driver"}
NAMES = {"postgres": "PostgreSQL", "mysql": "MariaDB"}
ROUNDS = 3
KEYS = 300_000
SEVEN = [column.split() for column in COLUMNS.split(", ")]

Way = Callable[["Database", Path], Callable[[Any], Any]]
"""Given a database and a home, what starts a query of a writer."""

_numbers = count()


@dataclass(frozen=True)
class Database:
    """An empty database for Penstock, for Spark's JDBC and for plain SQL."""

    kind: str
    url: str
    jdbc: str
    rewriting: str
    user: str
    password: str

    def options(self, table: str, *, rewrite: bool = False) -> dict[str, str]:
        """For Spark's `jdbc` format."""
        url = f"{self.jdbc}{'&' if '?' in self.jdbc else '?'}{self.rewriting}" if rewrite else self.jdbc
        return {"url": url, "driver": DRIVERS[self.kind], "dbtable": table, "user": self.user, "password": self.password}

    def execute(self, statement: str) -> None:
        """In a transaction of its own."""
        with self._connected() as connection, closing(connection.cursor()) as cursor:
            cursor.execute(statement)
            connection.commit()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self.kind == "postgres":
            import psycopg

            with psycopg.connect(self.url) as connection:
                yield connection
        else:
            with server("mysql").admin(urlsplit(self.url).path[1:]) as connection:
                yield connection


def _empty(kind: str, *, keyed: bool) -> Database:
    """With the table, so that all writers fill the same columns; Spark's own would store no parts of a second in MariaDB."""
    database = _new(kind)
    database.execute(_CREATE[kind].format(table="events", key=", PRIMARY KEY (id)" if keyed else ""))
    return database


def _new(kind: str) -> Database:
    running, name = server(kind), f"bench{next(_numbers)}"
    url = running.database(name)
    if kind == "postgres":
        jdbc, rewriting = f"jdbc:postgresql://127.0.0.1:{running.port}/{name}", "reWriteBatchedInserts=true"
        return Database(kind, url, jdbc, rewriting, postgres.ROLE, postgres.PASSWORD)
    jdbc, rewriting = f"jdbc:mysql://127.0.0.1:{running.port}/{name}?useMysqlMetadata=false", "rewriteBatchedStatements=true"
    return Database(kind, url, jdbc, rewriting, mysql.ROLE, mysql.PASSWORD)


def measure(spark: SparkSession, scratch: Path) -> list[Table]:
    """Large batches appended, the same by key, and small batches."""
    kinds = those_there(NAMES)
    if not kinds:
        return []
    append = {"Penstock": _penstock("append"), "JDBC": _jdbc, "JDBC, rewriting batches": _rewriting}
    upsert = {"Penstock": _penstock("upsert"), "JDBC into a table, then one statement": _merging}
    return [
        _compared(spark, _Input(root=scratch / "large", rows=100_000, batches=8, warm_up=2), kinds, append),
        _compared(spark, _Input(root=scratch / "keyed", rows=100_000, batches=8, warm_up=2, keyed=True), kinds, upsert),
        _compared(spark, _Input(root=scratch / "small", rows=1_000, batches=40, warm_up=12), kinds, append),
    ]


@dataclass(frozen=True, kw_only=True)
class _Input:
    """Files of one batch each. With `keyed`, ids come back: a batch has none twice, and three large batches have them all."""

    root: Path
    rows: int
    batches: int
    warm_up: int
    keyed: bool = False

    def write(self, spark: SparkSession) -> None:
        """In the order of their times."""
        self.root.mkdir(parents=True)
        for batch in range(self.batches):
            file = self.root / f"{batch:03}.parquet"
            pq.write_table(self._shaped(numbers(spark.range(batch * self.rows, (batch + 1) * self.rows))).toArrow(), file)
            os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))

    def expected(self, spark: SparkSession) -> DataFrame:
        """What must be in the table: with keys the last row of each."""
        every = numbers(spark.range(self.rows * self.batches))
        if not self.keyed:
            return every
        newest = every.groupBy(F.expr(_KEY)).agg(F.max("id").alias("id")).select("id")
        return self._shaped(every.join(newest, "id"))

    def _shaped(self, frame: DataFrame) -> DataFrame:
        return frame.withColumn("id", F.expr(_KEY)) if self.keyed else frame


def _compared(spark: SparkSession, source: _Input, kinds: Sequence[str], ways: "Mapping[str, Way]") -> Table:
    source.write(spark)
    expected = fingerprint(source.expected(spark))
    shown = []
    for kind in kinds:
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                database = _empty(kind, keyed=source.keyed)
                taken[name] += _batches_ms(spark, source, way(database, source.root.parent / "home"))
                assert fingerprint(_found(spark, database)) == expected, name
        ours = median(taken["Penstock"])
        for name, times in taken.items():
            took = median(times)
            shown.append([NAMES[kind], name, f"{took:.0f}", f"{source.rows / took * 1000:,.0f}", ratio(took / ours)])
    return Table(
        f"{source.rows:,} rows x 7 columns a batch into a database, {'upsert' if source.keyed else 'append'}, "
        "milliseconds per batch (median of whole triggers)",
        ["database", "writer", "milliseconds", "rows a second", "against Penstock"],
        shown,
        f"{ROUNDS} rounds in turns. Penstock is exactly-once, all others at-least-once.",
    )


def _batches_ms(spark: SparkSession, source: _Input, start: "Callable[[Any], Any]") -> list[float]:
    frame = stream(spark, source.root, files_per_batch=1)
    query = start(frame.writeStream.trigger(availableNow=True))
    query.awaitTermination()
    return [each.durationMs["triggerExecution"] for each in query.recentProgress if each.batchId >= source.warm_up]


def _found(spark: SparkSession, database: Database) -> DataFrame:
    """The table, read by Spark."""
    read = spark.read.format("jdbc").options(**database.options("events")).load()
    return read.selectExpr(*[f"CAST({name} AS {kind}) AS {name}" for name, kind in SEVEN])


# --- the writers


def _penstock(write: str) -> Way:
    def way(database: Database, home: Path) -> "Callable[[Any], Any]":
        shutil.rmtree(home, ignore_errors=True)
        sink = penstock.Postgres if database.kind == "postgres" else penstock.MySQL
        key = {"key": ["id"]} if write == "upsert" else {}
        table = sink(url=database.url, table="events", write=write, **key)
        return penstock.Delivery("bench", home=home, sinks={"events": table}).start

    return way


def _jdbc(database: Database, home: Path, *, rewrite: bool = False) -> "Callable[[Any], Any]":
    def write(rows: DataFrame, batch_id: int) -> None:
        rows.write.format("jdbc").options(**database.options("events", rewrite=rewrite)).mode("append").save()

    return _batchwise(write, home)


def _rewriting(database: Database, home: Path) -> "Callable[[Any], Any]":
    return _jdbc(database, home, rewrite=True)


def _merging(database: Database, home: Path) -> "Callable[[Any], Any]":
    """Into a table that is emptied first, and from there by the statement that the database has for it."""
    database.execute(_CREATE[database.kind].format(table="staged", key=""))
    staged = {**database.options("staged", rewrite=True), "truncate": "true"}

    def write(rows: DataFrame, batch_id: int) -> None:
        rows.write.format("jdbc").options(**staged).mode("overwrite").save()
        database.execute(_MERGE[database.kind])

    return _batchwise(write, home)


def _batchwise(write: "Callable[[DataFrame, int], None]", home: Path) -> "Callable[[Any], Any]":
    shutil.rmtree(home, ignore_errors=True)
    return lambda writer: writer.foreachBatch(write).option("checkpointLocation", str(home)).start()


_KEY = f"id * 7919 % {KEYS}"
_OTHERS = [name for name, _ in SEVEN if name != "id"]
_CREATE = {
    "postgres": "CREATE TABLE {table} (id BIGINT NOT NULL, account TEXT, name TEXT, amount DOUBLE PRECISION, "
    "price NUMERIC(12,2), at TIMESTAMPTZ, k INTEGER{key})",
    "mysql": "CREATE TABLE {table} (id BIGINT NOT NULL, account TEXT, name TEXT, amount DOUBLE, "
    "price DECIMAL(12,2), at TIMESTAMP(6) NULL, k INT{key})",
}
_COLUMNS = ", ".join(name for name, _ in SEVEN)
_MERGE = {
    "postgres": f"INSERT INTO events ({_COLUMNS}) SELECT {_COLUMNS} FROM staged ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _OTHERS),
    "mysql": f"INSERT INTO events ({_COLUMNS}) SELECT {_COLUMNS} FROM staged ON DUPLICATE KEY UPDATE "
    + ", ".join(f"{name} = VALUES({name})" for name in _OTHERS),
}
