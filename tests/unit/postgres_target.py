"""A table of a given schema in a database of its own, for the tests of the postgres sink."""

import json

from tests.unit.served_target import ServedRig
from tests.unit.table_target import targets_of

from penstock.sink.postgres.sink import PostgresSink


class TableRig(ServedRig):
    kind, sink, lock_timeout_s, loading, tries_after_a_kill = "postgres", PostgresSink, 0.2, "copy", 2
    gone = r'relation "public\.t" does not exist'
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    looks_every_s = 0.01

    def read_back(self):
        columns = ", ".join(f'"{field["name"]}"' for field in json.loads(self.schema)["fields"])
        return self.sql(f"SELECT {columns} FROM {self.table}")

    def session(self):
        import psycopg

        return psycopg.connect(self.running.url(self.name), autocommit=True, options="-c timezone=UTC")

    def sql(self, *statements):
        with self.session() as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


targets = targets_of(TableRig)
