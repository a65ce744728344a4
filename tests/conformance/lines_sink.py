"""A sink as a user writes it, over sqlite3: rows and mark in one transaction."""

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from penstock import OwnSink
from penstock.sink.own import from_json_lines, require_json, to_json_lines


class Lines(OwnSink[sqlite3.Connection]):
    """Rows and mark in one transaction."""

    reading = "SELECT line FROM line ORDER BY rowid"

    def __init__(self, path: str, **given: Any) -> None:
        super().__init__(**given)
        self.path = path

    @property
    def where(self) -> str:
        return self.path

    def exists(self) -> bool:
        return Path(self.path).exists()

    def create(self, schema):
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS line (batch TEXT, line TEXT)")
            connection.execute("CREATE TABLE IF NOT EXISTS mark (name TEXT PRIMARY KEY, mark TEXT)")

    @contextmanager
    def transaction(self):
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def write_rows(self, transaction, batch):
        for rows in batch.rows:
            transaction.executemany("INSERT INTO line VALUES (?, ?)", [(batch.key, line) for line in to_json_lines(rows)])

    def write_mark(self, transaction, key, mark):
        transaction.execute("INSERT OR REPLACE INTO mark VALUES (?, ?)", [key, mark])

    def read_mark(self, transaction, key):
        found = transaction.execute("SELECT mark FROM mark WHERE name = ?", [key]).fetchone()
        return found and found[0]

    def read_rows(self, transaction, schema):
        yield from_json_lines([line for (line,) in transaction.execute(self.reading)], schema)

    def row_check(self):
        return require_json
