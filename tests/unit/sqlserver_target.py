"""A table of a given schema on what stands in for SQL Server, for the tests of the sqlserver sink."""

import json
import sqlite3
from contextlib import closing
from functools import partial

from tests.servers import tsql
from tests.servers.tsql_in_sqlite import restored
from tests.unit.table_target import SINK, DeletingByName, spark_schema, targets_of

from penstock.sink.sqlserver.sink import SqlserverSink
from penstock.testing.conformance import SinkRig


class TableRig(DeletingByName, SinkRig):
    """SQL of the tests' own is SQLite's, about `t`; `define` takes T-SQL."""

    def __init__(self, directory, *, schema=None, table="t", **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.table, self.options = table, options
        tsql.WATCH.said.clear()
        tsql.WATCH.troubles.clear()

    @property
    def path(self):
        return self.directory / "shop.db"

    def make(self, **changed):
        url = "sqlserver://penstock:secret@localhost/shop?ssl_mode=disabled"
        settings = {"url": url, "table": self.table, "lock_timeout_s": 0.2, **self.options, **changed}
        spool = str(self.directory / "spool")
        return SqlserverSink(name=SINK, spool=spool, connect=partial(tsql.connect, self.directory), **settings)

    def make_markers_older(self):
        """As before the column `ledger_id`."""
        with self.session() as connection:
            connection.execute('ALTER TABLE "dbo.penstock_marker" DROP COLUMN ledger_id')
            connection.execute("DELETE FROM \"double.column\" WHERE place = 'dbo.penstock_marker' AND name = 'ledger_id'")

    def define(self, *statements):
        session = tsql.Session(self.path)
        for statement in statements:
            session.run(statement, None)
        session.close()

    def read_back(self):
        columns = ", ".join(f'"{field["name"]}"' for field in json.loads(self.schema)["fields"])
        return self.sql(f"SELECT {columns} FROM t")

    def session(self):
        return closing(sqlite3.connect(self.path, timeout=30, isolation_level=None))

    def sql(self, *statements):
        with self.session() as connection:
            for statement in statements:
                named = (
                    statement.replace(" t ", ' "dbo.t" ').replace("FROM t", 'FROM "dbo.t"').replace("penstock_", "dbo.penstock_")
                )
                cursor = connection.execute(named.replace("dbo.penstock_marker", '"dbo.penstock_marker"'))
            return [tuple(map(restored, row)) for row in cursor.fetchall()]


targets = targets_of(TableRig)
