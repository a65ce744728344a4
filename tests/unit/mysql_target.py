"""A table of a given schema in a database of its own, for the tests of the mysql sink."""

import json
from contextlib import contextmanager

from tests.unit.served_target import ServedRig
from tests.unit.table_target import targets_of

from penstock.sink.mysql.sink import MysqlSink


class TableRig(ServedRig):
    kind, sink, lock_timeout_s, loading, tries_after_a_kill = "mysql", MysqlSink, 1, "load", 1
    gone = r"has no such table: Table 'unit\d+\.t' doesn't exist"
    waiting = (
        "SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT' "
        "AND trx_mysql_thread_id IN (SELECT id FROM information_schema.PROCESSLIST WHERE db = DATABASE())"
    )
    looks_every_s = 0.12
    """MySQL looks anew only after nobody has asked for a tenth of a second, so it may still tell of another test's sessions."""

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
