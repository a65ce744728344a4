"""The dbapi sink over sqlite3, or over a module that is one with other manners."""

import sqlite3
from contextlib import closing
from types import ModuleType

from tests.unit.table_target import SINK, spark_schema

from penstock.sink.dbapi.sink import DbapiSink
from penstock.testing.conformance import SinkRig


class TableRig(SinkRig):
    """Over sqlite3, or another module that is one with other manners."""

    def __init__(self, directory, *, schema=None, table="t", driver="sqlite3", **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.path, self.driver, self.options = directory / "data.db", driver, {"longest": 50, "table": table, **options}

    def make(self, **changed):
        connect = {"database": str(self.path), "timeout": 0.1, "check_same_thread": False}
        given = {"driver": self.driver, "connect": connect, **self.options, **changed}
        return DbapiSink(**{"name": SINK, "spool": str(self.directory / "spool"), **given})

    def read_back(self):
        return self.sql('SELECT * FROM "t"')

    def sql(self, *statements):
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for one in statements:
                rows = connection.execute(one).fetchall()
        return rows


def module(name, style, **changed):
    """sqlite3 under another name, which takes parameters in another style."""
    made = ModuleType(name)
    vars(made).update({key: value for key, value in vars(sqlite3).items() if not key.startswith("_")})
    vars(made).update({"paramstyle": style, **changed})
    return made
