"""Databases that a pipeline fills besides its accounts, and what another client than the product's finds there."""

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import psycopg
import pymysql
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.conformance import lines_sink
from tests.crash.world import Row, assert_same
from tests.servers import cassandra
from tests.servers.cassandra import connected as keyspace_at
from tests.servers.fixtures import server, unique

_COLUMNS = "SELECT id, origin, month, payload, amount FROM flights"


def new_shop(database: str, directory: Path) -> str:
    """The place of an empty one."""
    if database == "duckdb":
        return f"duckdb:///{directory}/shop.duckdb"
    if database == "own":
        return f"{directory}/shop.db"
    if database.endswith("delta"):
        return f"{directory}/tables/shop"
    if database.endswith("iceberg"):
        return f"{directory}/warehouse"
    return str(server("postgres" if database == "dbapi" else database).database(unique("shop")))


def written(database: str, shop: str, root: Path) -> str:
    """A sink into it, as the pipeline file has it. A sink of one's own lies beside the pipeline file below `root`."""
    if database == "dbapi":
        return f"{{type: dbapi, driver: psycopg, connect: {{conninfo: {json.dumps(shop)}}}, table: flights}}"
    if database == "own":
        shutil.copy(str(lines_sink.__file__), root)
        return f"{{python: 'lines_sink:Lines', path: {json.dumps(shop)}}}"
    compacted = ", maintenance: {every: 1, compact: true}" if database.startswith("compacted ") else ""
    if database.endswith("delta"):
        return f"{{type: delta, path: {json.dumps(shop)}{compacted}}}"
    if database.endswith("iceberg"):
        catalog = json.dumps(f"sqlite:///{shop}.db")
        return f"{{type: iceberg, catalog: {catalog}, table: shop.flights, warehouse: {json.dumps(shop)}{compacted}}}"
    key = ", key: [id], wait: 40s" if database == "cassandra" else ""
    return f"{{type: {database}, url: {json.dumps(shop)}, table: flights{key}}}"


def assert_sold(database: str, shop: str, everything: "Counter[Row]") -> None:
    """It has every row, or where there is a key each of them once: rows of one id are equal."""
    expected = Counter(set(everything)) if database == "cassandra" else everything
    assert_same(database, found=_rows(database, shop), expected=expected)


def _rows(database: str, shop: str) -> "Counter[Row]":
    if database == "own":
        with closing(sqlite3.connect(shop)) as connection:
            rows = [json.loads(line) for (line,) in connection.execute("SELECT line FROM line")]
        return Counter((row["id"], row["origin"], row["month"], row["payload"], row["amount"]) for row in rows)
    if database.endswith("delta"):
        files = DeltaTable(shop).file_uris()
        return Counter(duckdb.sql(f"{_COLUMNS.rpartition(' ')[0]} read_parquet({files})").fetchall())
    if database.endswith("iceberg"):
        with closing(SqlCatalog("default", uri=f"sqlite:///{shop}.db")) as catalog:
            files = [
                task.file.file_path.removeprefix("file://") for task in catalog.load_table("shop.flights").scan().plan_files()
            ]
        return Counter(duckdb.sql(f"{_COLUMNS.rpartition(' ')[0]} read_parquet({files})").fetchall())
    if database == "cassandra":
        parts = urlsplit(shop)
        with keyspace_at(parts.port or 0, cassandra.ROLE, cassandra.PASSWORD, parts.path[1:]) as session:
            return Counter(tuple(row) for row in session.execute(_COLUMNS))
    with connected(shop) as connection, connection.cursor() as cursor:
        cursor.execute(_COLUMNS)
        return Counter(cursor.fetchall())


def connected(url: str) -> Any:
    """Another client than the product's settings make."""
    if url.startswith("duckdb"):
        return duckdb.connect(url.removeprefix("duckdb:///"))
    if url.startswith(("postgresql", "redshift")):  # what stands in for Redshift is one
        return psycopg.connect(url.replace("redshift", "postgresql", 1))
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=unquote(parts.password or ""),
        database=parts.path[1:],
    )
