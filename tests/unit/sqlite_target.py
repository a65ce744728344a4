"""A table of a given schema, for the tests of the sqlite sink: delivered to step by step, looked at with plain SQL."""

import sqlite3

from tests.unit.table_target import SINK, DeletingByName, TableBench, spark_schema

from penstock.core import faults
from penstock.sink.sqlite import SqliteSink
from penstock.testing.conformance import SinkRig


class TableRig(DeletingByName, SinkRig):
    def __init__(self, directory, *, schema=None, table="t", **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.table = table
        self.options = options
        self.path = directory / "data.db"

    def make(self, **changed):
        settings = {"busy_timeout_s": 0.05, "path": self.path, "table": self.table, **self.options, **changed}
        return SqliteSink(**{"name": SINK, "spool": str(self.directory / "spool"), **settings})

    def read_back(self):
        name = self.table.replace('"', '""')
        return [dict(row) for row in self.sql(f'SELECT * FROM "{name}"')]

    def sql(self, statement, *values):
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.row_factory = sqlite3.Row
        try:
            return connection.execute(statement, values).fetchall()
        finally:
            connection.close()


class Target(TableBench):
    """The bench of a table in `directory`."""

    def __init__(self, directory, **options):
        super().__init__(TableRig(directory, **options))


def targets(tmp_path):
    """A fixture: makes tables, all in one file, and closes them in the end."""
    made = []

    def make(**options):
        made.append(Target(tmp_path, **options))
        return made[-1]

    yield make
    faults.arm("")
    for one in made:
        one.close()
