"""A table of the rig of a native sink, behind a driver of Python's DB-API."""

from urllib.parse import unquote, urlsplit

from penstock.sink.dbapi.sink import DbapiSink
from penstock.testing.conformance import SinkRig

COLUMNS = {"mysql": {"name": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"}}


def connect_of(kind, rig):
    if kind == "sqlite":
        return "sqlite3", {"database": str(rig.path), "check_same_thread": False}
    url = rig.running.url(rig.name)
    if kind == "postgres":
        return "psycopg", {"conninfo": url}
    parts = urlsplit(url)
    where = {"host": parts.hostname, "port": parts.port, "database": parts.path[1:], "charset": "utf8mb4"}
    return "pymysql", {**where, "user": parts.username, "password": unquote(parts.password or "")}


class AnyDriverRig(SinkRig):
    """The table of another rig, behind a driver."""

    def __init__(self, kind, rig):
        super().__init__(rig.directory)
        self.schema, self._kind, self._rig = rig.schema, kind, rig

    def make(self, **changed):
        driver, connect = connect_of(self._kind, self._rig)
        given = {"name": "any", "table": "t", "spool": str(self.directory / "any"), "longest": 50, "driver": driver}
        return DbapiSink(**{**given, "connect": connect, "columns": COLUMNS.get(self._kind, {}), **changed})

    def read_back(self):
        return self._rig.read_back()

    def sql(self, *statements):
        return self._rig.sql(*statements)
