"""The `DatabaseLedger` of PostgreSQL.

Source: the manual of PostgreSQL, "Read Committed Isolation Level": an insert waits for a concurrent insert of the same key, and
each statement sees what was committed before it began.
"""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import psycopg

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName
from penstock.errors import Failed, GuaranteeTooWeak
from penstock.ledger.database import KEY, LEDGER_TABLE
from penstock.ledger.database_ledger import DatabaseLedger
from penstock.ledger.postgres_statements import statements_in
from penstock.sql.postgres.database import Connection, Database, require_schema
from penstock.sql.postgres.errors import connection_lost
from penstock.sql.postgres.names import DEFAULT_SCHEMA, require_name
from penstock.sql.postgres.statements import TABLE_KIND, TABLE_UNIQUES, TAKE_LOCK
from penstock.sql.session import LOCK_TIMEOUT_S
from penstock.sql.table_name import in_double_quotes

CREATE = FaultPoint("ledger.postgres_create", "The ledger's table and its view are created and committed.")
INSERT = FaultPoint("ledger.postgres_insert", "The entry is inserted at its position, in an open transaction.")
COMMIT = FaultPoint("ledger.postgres_commit", "The entry's transaction is committed.")
PRUNE = FaultPoint("ledger.postgres_prune", "Old entries are deleted in one transaction.")


class PostgresLedger(DatabaseLedger[Connection]):
    """A `DatabaseLedger` in the database at `url`, in a table of `schema`. `within` gets the `psycopg.Connection`."""

    _database: Database
    _inserting = staticmethod(partial(INSERT.around, error=connection_lost, lost=connection_lost))
    _committing = staticmethod(partial(COMMIT.around, error=connection_lost, lost=connection_lost))
    _pruning = staticmethod(partial(PRUNE.around, error=connection_lost, lost=connection_lost))

    def __init__(
        self, url: str, *, pipeline: PipelineName, schema: str = DEFAULT_SCHEMA, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        self._schema = require_name(schema)
        database = Database(url, application=f"penstock:{pipeline}", lock_timeout_s=lock_timeout_s)
        where = "" if schema == DEFAULT_SCHEMA else f", schema {schema}"
        location = f"postgresql://{database.place}{where}"
        super().__init__(database, statements_in(schema), pipeline=pipeline, location=location)

    def _fetch(
        self, connection: Connection, statement: "psycopg.sql.Composed", values: tuple[str | int, ...]
    ) -> tuple[int, str] | None:
        try:
            return connection.execute(statement, values).fetchone()
        except psycopg.errors.UndefinedTable:
            return None

    def _put(self, connection: Connection, pipeline: str, position: int, text: str) -> bool:
        return connection.execute(self._sql.insert, (pipeline, position, text)).fetchone() is not None

    def _commit(self, connection: Connection) -> None:
        self._database.commit(connection)

    def _settling(self) -> AbstractContextManager[None]:
        return self._database.unknown_if_cut("the newest entry", read="the ledger", kind=Failed)

    def _require_table(self, connection: Connection) -> None:
        if self._found(connection) is None:
            self._create(connection)
        row = self._found(connection)
        assert row is not None
        oid, kind, persistence, _, _ = row
        if kind == "r" and persistence != "p":
            raise GuaranteeTooWeak(
                f"The table {LEDGER_TABLE} of the ledger {self.location} is unlogged, so a crash of the server empties it.",
                remedy=f"ALTER TABLE {in_double_quotes(self._schema, LEDGER_TABLE)} SET LOGGED.",
            )
        uniques = [frozenset(names) for (names,) in connection.execute(TABLE_UNIQUES, (oid,)).fetchall()]
        if kind != "r" or KEY not in uniques:
            raise self._no_ledger_table()

    def _found(self, connection: Connection) -> tuple[Any, ...] | None:
        return connection.execute(TABLE_KIND, (self._schema, LEDGER_TABLE)).fetchone()

    def _create(self, connection: Connection) -> None:
        with CREATE.around(error=connection_lost, lost=connection_lost):
            self._database.begin(connection)
            connection.execute(TAKE_LOCK)
            require_schema(connection, self._schema)
            if self._found(connection) is None:
                connection.execute(self._sql.create_ledger, ())
                connection.execute(self._sql.create_history, ())
            self._database.commit(connection)
