"""A database that every row of a scratch pipeline goes into, too."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import psycopg
import pymysql

from tests.crash.world import Row, World
from tests.servers.cassandra import PASSWORD, ROLE
from tests.servers.cassandra import connected as connected_to_cassandra
from tests.servers.fixtures import server, unique

ROWS = "SELECT id, origin, month, payload, amount FROM flights"


def empty_shop(kind: str, directory: Path) -> str | None:
    """The URL of an empty database, None where there is to be none."""
    if kind == "duckdb":
        return f"duckdb:///{directory}/shop.duckdb"
    return str(server(kind).database(unique("faults"))) if kind else None


def settings_of_shop(kind: str, url: str) -> str:
    """The sink as the pipeline file has it."""
    key = ", key: [id]" if kind == "cassandra" else ""
    return f"{{type: {kind}, url: {json.dumps(url)}, table: flights{key}}}"


def rows_for_shop(world: World, kind: str) -> "Counter[Row]":
    """All rows; those that are equal have one key, so Cassandra has each of them once."""
    sent = sum(world.expected.values(), Counter[Row]())
    return Counter(dict.fromkeys(sent, 1)) if kind == "cassandra" else sent


def rows_of_shop(url: str) -> "Counter[Row]":
    if url.startswith("cassandra"):
        parts = urlsplit(url)
        with connected_to_cassandra(parts.port or 0, ROLE, PASSWORD, parts.path[1:]) as session:
            return Counter(tuple(row) for row in session.execute(ROWS))
    with _connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(ROWS)
        return Counter(cursor.fetchall())


def _connected(url: str) -> Any:
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
