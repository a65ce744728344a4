"""A database of its own on a server, with ledgers in it, for the tests of the ledgers there."""

import threading
from itertools import islice

from tests.servers.fixtures import server, unique
from tests.unit.mysql_target import TableRig

from penstock.ledger.mysql import MysqlLedger
from penstock.ledger.postgres import PostgresLedger
from penstock.testing.entries import PIPELINE, chain

ENTRIES = "SELECT position, pipeline FROM penstock_ledger ORDER BY position, pipeline"


class Place:
    """What differs: the `kind` of server and its ledger, and how tests talk to it besides.

    `first_end`: the end of an entry's first range, in a query of the history. `named`: what lists all tables and views.
    """

    kind: str
    ledger_class: type
    lock_timeout_s: float
    idle: tuple[float, float, str]
    """A time after which a driver that stands still is thrown out, one that is longer, and what it is told then."""
    first_end: str
    named: str
    ends: str
    """What ends all of the ledger's sessions."""
    no_answer: type[Exception]
    """What the client raises in a sink of the same database where the server is gone."""

    def __init__(self, running=None):
        self.running, self.name = running or server(self.kind), unique("ledgerunit")
        self.url = self.running.database(self.name)
        self.made = []

    def ledger(self, *, port=None, url=None, pipeline=PIPELINE, **options):
        url = url or self.running.url(self.name, port=port)
        self.made.append(self.ledger_class(url, pipeline=pipeline, **{"lock_timeout_s": self.lock_timeout_s, **options}))
        return self.made[-1]

    def filled(self, count, **options):
        ledger, entries = self.ledger(**options), list(islice(chain(), count))
        for entry in entries:
            ledger.append(entry)
        return ledger, entries

    def close(self):
        for ledger in self.made:
            ledger.close()

    def session(self):
        """A context with `execute`: a session that is not the ledger's."""
        raise NotImplementedError

    def sql(self, statement, *values):
        with self.session() as session:
            session.execute(statement, values or None)
            return list(session.fetchall()) if session.description else []

    def positions(self):
        return [position for position, _ in self.sql(ENTRIES)]


class PostgresPlace(Place):
    kind, ledger_class, lock_timeout_s = "postgres", PostgresLedger, 0.2
    idle = (0.2, 1, "idle-in-transaction timeout")
    first_end = "offsets -> 0 ->> 'end'"
    named = "SELECT relname FROM pg_class WHERE relname ~ '^penstock'"
    ends = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock:{PIPELINE}'"

    @property
    def no_answer(self):
        import psycopg

        return psycopg.OperationalError

    def session(self):
        import psycopg

        return _Closing(psycopg.connect(self.url, autocommit=True))


class MysqlPlace(Place):
    kind, ledger_class, lock_timeout_s = "mysql", MysqlLedger, 1
    idle = (1, 2.5, "gave no answer")
    first_end = "JSON_VALUE(offsets, '$[0].end')"
    named = "SHOW TABLES"
    ends = "KILL USER penstock"

    @property
    def no_answer(self):
        import pymysql

        return pymysql.err.Error

    def session(self):
        return _Closing(self.running.admin(self.name))

    def await_lock(self):
        """Until a session of this database waits for another's lock."""
        waiting = threading.Event()
        while not self.sql(TableRig.waiting):
            waiting.wait(TableRig.looks_every_s)


class _Closing:
    """A cursor that ends with its connection."""

    def __init__(self, connection):
        self._connection = connection

    def __enter__(self):
        return self._connection.cursor()

    def __exit__(self, *_):
        self._connection.close()


PLACES = {"mysql": MysqlPlace, "postgres": PostgresPlace}


def inserting(value):
    """What a sink of the same database writes: a row of the table `flights`."""
    return lambda transaction: transaction.execute("INSERT INTO flights VALUES (%s)", (value,))
