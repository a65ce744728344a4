"""Empty tables `events` for the writers that are measured, on the servers of the tests: here, with fsync, sharing the cores.

The JDBC drivers come from Maven, for the bench only; for MariaDB it is its own, since MySQL's stores no parts of a second there.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from tests.servers import cassandra, mysql, postgres
from tests.servers.fixtures import server

from bench.inputs import COLUMNS

PACKAGES = ("org.postgresql:postgresql:42.7.8", "org.mariadb.jdbc:mariadb-java-client:2.7.12")
DRIVERS = {"postgres": "org.postgresql.Driver", "mysql": "org.mariadb.jdbc.Driver"}
SEVEN = [column.split() for column in COLUMNS.split(", ")]
NAMED = ", ".join(name for name, _ in SEVEN)
TYPES = {
    "postgres": "id BIGINT NOT NULL, account TEXT, name TEXT, amount FLOAT8, price NUMERIC(12,2), at TIMESTAMPTZ, k INTEGER",
    "mysql": "id BIGINT NOT NULL, account TEXT, name TEXT, amount DOUBLE, price DECIMAL(12,2), at TIMESTAMP(6) NULL, k INT",
    "cassandra": "id bigint, account text, name text, amount double, price decimal, at timestamp, k int",
}

WIDER = {"postgres": "day DATE, seen TIMESTAMPTZ", "mysql": "day DATE, seen TIMESTAMP(6) NULL"}
"""The columns that a wide table has besides."""

_numbers = count()


@dataclass(frozen=True)
class Target:
    """The table, for Penstock by its `url` and for a look from outside."""

    kind: str
    url: str

    def execute(self, statement: str) -> None:
        """In a transaction of its own."""
        with self._connected() as connection, closing(connection.cursor()) as cursor:
            cursor.execute(statement)
            connection.commit()

    def drop(self) -> None:
        """The table, so that a server does not clean up behind one writer while the next is measured."""
        if self.kind != "cassandra":  # which copies what it drops
            self.execute("DROP TABLE events")

    def options(self, table: str, *, rewrite: bool = False) -> dict[str, str]:
        """For Spark's `jdbc` format."""
        parts = urlsplit(self.url)
        jdbc = f"jdbc:{parts.scheme}://127.0.0.1:{parts.port}{parts.path}"
        if rewrite:
            jdbc += "?reWriteBatchedInserts=true" if self.kind == "postgres" else "?rewriteBatchedStatements=true"
        user, password = (postgres.ROLE, postgres.PASSWORD) if self.kind == "postgres" else (mysql.ROLE, mysql.PASSWORD)
        return {"url": jdbc, "driver": DRIVERS[self.kind], "dbtable": table, "user": user, "password": password}

    def found(self, spark: SparkSession, columns: str = COLUMNS) -> DataFrame:
        """Every row of the table, whose columns are these."""
        if self.kind == "cassandra":
            read = self._read_cassandra(spark)
        else:
            read = spark.read.format("jdbc").options(**self.options("events")).load()
        return read.selectExpr(*[f"CAST({name} AS {kind}) AS {name}" for name, kind in map(str.split, columns.split(", "))])

    def session(self) -> "AbstractContextManager[Any]":
        """Of Cassandra's own driver."""
        parts = urlsplit(self.url)
        return cassandra.connected(parts.port or 0, cassandra.ROLE, cassandra.PASSWORD, parts.path[1:])

    def _read_cassandra(self, spark: SparkSession) -> DataFrame:
        with self.session() as session:
            rows = [tuple(row) for row in session.execute(f"SELECT {NAMED} FROM events")]
        columns = [pa.array(list(values)) for values in zip(*rows, strict=True)]
        return spark.createDataFrame(pa.table(columns, names=[name for name, _ in SEVEN]))

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self.kind == "postgres":
            import psycopg

            with psycopg.connect(self.url) as connection:
                yield connection
        else:
            with server("mysql").admin(urlsplit(self.url).path[1:]) as connection:
                yield connection


def new_target(kind: str, *, keyed: bool, wide: bool = False) -> Target:
    """With the table, so that all writers fill the same columns: Spark's own would store no parts of a second in MariaDB."""
    target = Target(kind, server(kind).database(f"bench{next(_numbers)}"))
    if kind == "cassandra":
        with target.session() as session:
            session.execute(f"CREATE TABLE events ({TYPES[kind]}, PRIMARY KEY (id))")
    else:
        more = f", {WIDER[kind]}" if wide else ""
        target.execute(f"CREATE TABLE events ({TYPES[kind]}{more}{', PRIMARY KEY (id)' if keyed else ''})")
    return target
