"""A table of a given schema in a database of its own, for the tests of the mysql sink."""

import json
from contextlib import contextmanager

from tests.servers.fixtures import server, unique
from tests.unit.table_target import SINK, spark_schema, targets_of

from penstock.sink.mysql.sink import MysqlSink
from penstock.testing.conformance import SinkRig


class TableRig(SinkRig):
    def __init__(self, directory, *, running=None, schema=None, table="t", port=None, **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.table, self.options = table, options
        self.running = running or server("mysql")
        self.name = unique("unit")
        self.running.database(self.name)
        self.port = port

    @property
    def url(self):
        return self.running.url(self.name, port=self.port)

    def make(self, **changed):
        settings = {"url": self.url, "table": self.table, "lock_timeout_s": 1, **self.options, **changed}
        return MysqlSink(name=SINK, spool=str(self.directory / "spool"), **settings)

    def read_back(self):
        columns = ", ".join(f"`{field['name']}`" for field in json.loads(self.schema)["fields"])
        return self.sql(f"SELECT {columns} FROM {self.table}")

    @contextmanager
    def session(self):
        """A session of a superuser's, who gets along with strict settings and without."""
        with self.running.admin(self.name) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            yield cursor

    def sql(self, *statements):
        with self.session() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())


targets = targets_of(TableRig)
