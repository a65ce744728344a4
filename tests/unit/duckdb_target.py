"""A table of a given schema in a DuckDB file of its own, for the tests of the duckdb sink."""

import duckdb
from tests.unit.table_target import SINK, DeletingByName, spark_schema, targets_of

from penstock.sink.duckdb.sink import DuckdbSink
from penstock.testing.conformance import SinkRig


class TableRig(DeletingByName, SinkRig):
    text = "text"

    def __init__(self, directory, *, schema=None, table="t", **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.table, self.options = table, options
        self.path = directory / "data.duckdb"
        self.where = str(self.path)

    def make(self, **changed):
        settings = {"busy_timeout_s": 0.05, "path": self.path, "table": self.table, **self.options, **changed}
        return DuckdbSink(**{"name": SINK, "spool": str(self.directory / "spool"), **settings})

    def read_back(self):
        return self.sql(f'SELECT * FROM "{self.table}"')

    def sql(self, *statements):
        with duckdb.connect(self.path) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for statement in statements:
                connection.execute(statement)
            return connection.fetchall()


targets = targets_of(TableRig)
