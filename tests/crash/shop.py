"""Databases that a pipeline under fault fills besides its accounts, and what another client than the product's finds there."""

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

from tests.conformance import lines_sink
from tests.crash.world import Row
from tests.servers.fixtures import server, unique

_COLUMNS = "SELECT id, origin, month, payload, amount FROM flights"


def shop_of(database: str, directory: Path) -> str | None:
    """The URL of an empty one."""
    if database == "duckdb":
        return f"duckdb:///{directory}/shop.duckdb"
    if database == "own":
        return f"{directory}/shop.db"
    kind = "postgres" if database == "dbapi" else database
    return str(server(kind).database(unique("faults"))) if database else None


def settings_of_shop(database: str, shop: str, root: Path) -> str:
    """The sink's settings. A sink of one's own lies beside the pipeline file below `root`."""
    if database == "dbapi":
        return f"{{type: dbapi, driver: psycopg, connect: {{conninfo: {json.dumps(shop)}}}, table: flights}}"
    if database == "own":
        shutil.copy(str(lines_sink.__file__), root)
        return f"{{python: 'lines_sink:Lines', path: {json.dumps(shop)}}}"
    return f"{{type: {database}, url: {json.dumps(shop)}, table: flights}}"


def rows_of_shop(database: str, shop: str) -> "Counter[Row]":
    if database == "own":
        with closing(sqlite3.connect(shop)) as connection:
            rows = [json.loads(line) for (line,) in connection.execute("SELECT line FROM line")]
        return Counter((row["id"], row["origin"], row["month"], row["payload"], row["amount"]) for row in rows)
    with _connected(shop) as connection, connection.cursor() as cursor:
        cursor.execute(_COLUMNS)
        return Counter(cursor.fetchall())


def _connected(url: str) -> Any:
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
