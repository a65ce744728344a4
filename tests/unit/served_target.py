"""A table of a given schema in a database of its own on a server, for the tests that all sinks of servers must pass."""

import threading
from importlib import import_module

from tests.servers import cutting
from tests.servers.fixtures import server, unique
from tests.unit.table_target import SINK, DeletingByName, spark_schema

from penstock.testing.conformance import SinkRig


class ServedRig(DeletingByName, SinkRig):
    """What differs: `kind` of server, how the sink is made, what its own sessions and SQL are, and what the server says."""

    kind: str
    where = "127.0.0.1"
    sink: type
    lock_timeout_s: float
    loading: str
    """The step of publishing in which rows go to the server, as its fault point says it."""
    tries_after_a_kill: int
    """How many it takes at the most: one where a connection is looked at before it is used, two where it is not."""
    waiting: str
    """Which of the database's sessions wait for a lock."""
    looks_every_s: float
    gone: str
    """What a server says of a table that is gone."""
    holding = "SELECT 1 FROM penstock_marker FOR UPDATE"
    """What keeps publishers out."""
    text = "text"
    """The type of a column that takes any text."""

    def __init__(self, directory, *, running=None, schema=None, table="t", port=None, **options):
        super().__init__(directory)
        self.schema = schema or spark_schema(id="long", name="string")
        self.table, self.options = table, options
        self.running = running or server(self.kind)
        self.name = unique("unit")
        self.running.database(self.name)
        self.port = port

    @property
    def url(self):
        return self.running.url(self.name, port=self.port)

    def make(self, **changed):
        settings = {"url": self.url, "table": self.table, "lock_timeout_s": self.lock_timeout_s, **self.options, **changed}
        return self.sink(**{"name": SINK, "spool": str(self.directory / "spool"), **settings})

    def cutting(self):
        """A network before the server that is cut at a COMMIT."""
        return cutting.before(self.running.port)

    def session(self):
        """A context with `execute`: a session that is not the sink's."""
        raise NotImplementedError

    def sql(self, *statements):
        raise NotImplementedError

    def await_lock(self):
        """Until a session of this database waits for another's lock."""
        waiting = threading.Event()
        while not self.sql(self.waiting):
            waiting.wait(self.looks_every_s)


def every_target(tmp_path, request):
    """A fixture with the kinds of servers for parameters: makes tables there."""
    yield from import_module(f"tests.unit.{request.param}_target").targets(tmp_path)
