"""A table of a given schema in a database of its own, for the tests of the postgres sink."""

import json

from tests.servers.fixtures import server, unique
from tests.unit.table_target import SINK, spark_schema, targets_of

from penstock.sink.postgres.sink import PostgresSink
from penstock.testing.conformance import SinkRig


class TableRig(SinkRig):
    def __init__(self, directory, *, running=None, schema=None, table="t", port=None, **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.table, self.options = table, options
        self.running = running or server("postgres")
        self.name = unique("unit")
        self.running.database(self.name)
        self.port = port

    @property
    def url(self):
        return self.running.url(self.name, port=self.port)

    def make(self, **changed):
        settings = {"url": self.url, "table": self.table, "lock_timeout_s": 0.2, **self.options, **changed}
        return PostgresSink(name=SINK, spool=str(self.directory / "spool"), **settings)

    def read_back(self):
        columns = ", ".join(f'"{field["name"]}"' for field in json.loads(self.schema)["fields"])
        return self.sql(f"SELECT {columns} FROM {self.table}")

    def connection(self):
        import psycopg

        return psycopg.connect(self.running.url(self.name), autocommit=True, options="-c timezone=UTC")

    def sql(self, statement, *values):
        with self.connection() as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []


targets = targets_of(TableRig)
