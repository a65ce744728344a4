"""A table of a given schema on a node, for the tests of the cassandra sink; one keyspace for all, which saves seconds."""

from functools import cache
from typing import Any

from tests.servers.fixtures import server, unique
from tests.unit.table_target import DeletingByName, spark_schema, targets_of

from penstock.core.model import SinkName
from penstock.sink.cassandra import load
from penstock.sink.cassandra.database import StepRetry
from penstock.sink.cassandra.sink import CassandraSink
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import SinkRig

KEYSPACE = "unit"


def keyspace() -> Any:
    """The running node, which has it from now on."""
    return _with_keyspace(server("cassandra"))


@cache
def _with_keyspace(running: Any) -> Any:
    running.database(KEYSPACE)
    return running


class TableRig(DeletingByName, SinkRig):
    """`created`: the CQL that makes the table, with `{}` for its name; without it, the sink makes it."""

    def __init__(self, directory, *, schema=None, created=None, port=None, **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.running, self.table, self.port = keyspace(), unique("t"), port
        self.options = {"key": ["id"], "wait_s": 60, **options}
        if created:
            self.sql(f"CREATE TABLE {self.table} {created}")

    @property
    def url(self):
        return self.running.url(KEYSPACE, port=self.port)

    @property
    def name(self):
        return SinkName(f"into_{self.table}")

    def make(self, **changed):
        settings = {"url": self.url, "table": self.table, "name": self.name, **self.options, **changed}
        return CassandraSink(spool=str(self.directory / "spool"), **settings)

    def read_back(self):
        return self.sql(f"SELECT * FROM {self.table}")

    def sql(self, *statements):
        """By another client; `{}` is the table."""
        session = self.running.session(KEYSPACE)
        return [session.execute(statement.replace("{}", self.table)) for statement in statements][-1].all()

    def marker(self, columns):
        return tuple(
            self.sql(f"SELECT {columns} FROM penstock_marker WHERE pipeline = 'conformance' AND sink = '{self.name}'")[0]
        )


targets = targets_of(TableRig)


def write_late(table, sink, rows, *, at_us):
    """Write `rows` as a driver does that took this time stamp before it stood still."""
    patience, schema = StepRetry(sink._database, wait_s=60), arrow_schema(table.rig.schema)
    load.Writer(patience, sink._target, lambda: iter([rows]), schema=schema, dated=[]).write(at_us=at_us)
