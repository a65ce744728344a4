"""A table of a given schema, for the tests of the sqlite sink: delivered to step by step, looked at with plain SQL."""

import json
import sqlite3

from penstock.model import SinkName
from penstock.sink.sqlite import SqliteSink
from penstock.testing.conformance import Bench, SinkRig

SINK = SinkName("warehouse")


def spark_schema(**columns):
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


class TableRig(SinkRig):
    def __init__(self, directory, *, schema=None, table="t", **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.table = table
        self.options = options
        self.path = directory / "data.db"

    def make(self):
        options = {"busy_timeout_s": 0.05, **self.options}
        return SqliteSink(name=SINK, path=self.path, table=self.table, spool=str(self.directory / "spool"), **options)

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


class Target(Bench):
    """A bench and its rig in one: `deliver` takes rows as tuples in the order of the columns."""

    def __init__(self, directory, **options):
        super().__init__(TableRig(directory, **options))
        self.columns = [field["name"] for field in json.loads(self.rig.schema)["fields"]]

    def sql(self, statement, *values):
        return [tuple(row) for row in self.rig.sql(statement, *values)]

    def named(self, rows):
        return [dict(zip(self.columns, row, strict=True)) for row in rows]

    def put(self, sink, *attempts, batch_id):
        return self.deliver(sink, *(self.named(rows) for rows in attempts), batch_id=batch_id)

    def decided_but_not_published(self, sink, rows, *, batch_id):
        named = self.named(rows)
        return self.decide((named, self.stage(sink, named, batch_id=batch_id)), batch_id=batch_id).publication
