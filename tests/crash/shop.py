"""A table of every row in some database, beside the accounts: made for a test, and read by another client than the product's."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import psycopg
import pymysql

from tests.crash.world import Row, assert_same
from tests.servers import cassandra
from tests.servers.cassandra import connected as keyspace_at
from tests.servers.fixtures import server, unique


def new_shop(kind: str, directory: Path) -> str:
    """The URL of an empty database."""
    if kind == "duckdb":
        return f"duckdb:///{directory}/shop.duckdb"
    return str(server(kind).database(unique("shop")))


def written(url: str) -> str:
    """A sink into it, as the pipeline file has it."""
    kind = {"postgresql": "postgres"}.get(urlsplit(url).scheme, urlsplit(url).scheme)
    key = ", key: [id], wait: 40s" if kind == "cassandra" else ""
    return f"{{type: {kind}, url: {json.dumps(url)}, table: flights{key}}}"


def rows_of_shop(url: str) -> "Counter[Row]":
    """What is in the table."""
    if url.startswith("cassandra"):
        parts = urlsplit(url)
        with keyspace_at(parts.port or 0, cassandra.ROLE, cassandra.PASSWORD, parts.path[1:]) as session:
            return Counter(tuple(row) for row in session.execute("SELECT id, origin, month, payload, amount FROM flights"))
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, origin, month, payload, amount FROM flights")
        return Counter(cursor.fetchall())


def assert_sold(url: str, everything: "Counter[Row]") -> None:
    """The table has every row, or where it has a key each of them once: rows of one id are equal."""
    kind = urlsplit(url).scheme
    assert_same(kind, found=rows_of_shop(url), expected=Counter(set(everything)) if kind == "cassandra" else everything)


def connected(url: str) -> Any:
    """Another client than the product's settings make."""
    if url.startswith("duckdb"):
        return duckdb.connect(url.removeprefix("duckdb:///"))
    if url.startswith("postgresql"):
        return psycopg.connect(url)
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=unquote(parts.password or ""),
        database=parts.path[1:],
    )
