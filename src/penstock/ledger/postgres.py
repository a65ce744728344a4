"""The `DatabaseLedger` of PostgreSQL.

Source: the manual of PostgreSQL, "Read Committed Isolation Level": an insert waits for a concurrent insert of the same key, and
each statement sees what was committed before it began.
"""

from contextlib import AbstractContextManager

import psycopg

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName
from penstock.errors import Failed
from penstock.ledger.database_ledger import DatabaseLedger
from penstock.ledger.postgres_statements import PostgresStatements
from penstock.ledger.postgres_table import has_table, require_table
from penstock.sql.postgres.database import Connection, Database, require_schema
from penstock.sql.postgres.errors import connection_lost
from penstock.sql.postgres.names import DEFAULT_SCHEMA, require_name
from penstock.sql.postgres.statements import TAKE_LOCK
from penstock.sql.session import LOCK_TIMEOUT_S

CREATE = FaultPoint("ledger.postgres_create", "The ledger's table and its view are created and committed.")
INSERT = FaultPoint("ledger.postgres_insert", "The entry is inserted at its position, in an open transaction.")
COMMIT = FaultPoint("ledger.postgres_commit", "The entry's transaction is committed.")
PRUNE = FaultPoint("ledger.postgres_prune", "Old entries are deleted in one transaction.")


class PostgresLedger(DatabaseLedger[Connection]):
    """A `DatabaseLedger` in the database at `url`, in a table of `schema`. `within` gets the `psycopg.Connection`."""

    _database: Database
    _sql: PostgresStatements

    def __init__(
        self, url: str, *, pipeline: PipelineName, schema: str = DEFAULT_SCHEMA, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        self._schema = require_name(schema)
        database = Database(url, application=f"penstock:{pipeline}", lock_timeout_s=lock_timeout_s)
        where = "" if schema == DEFAULT_SCHEMA else f", schema {schema}"
        location = f"postgresql://{database.place}{where}"
        super().__init__(database, PostgresStatements(schema), pipeline=pipeline, location=location)

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

    def _inserting(self) -> AbstractContextManager[None]:
        return INSERT.around(error=connection_lost, lost=connection_lost)

    def _committing(self) -> AbstractContextManager[None]:
        return COMMIT.around(error=connection_lost, lost=connection_lost)

    def _pruning(self) -> AbstractContextManager[None]:
        return PRUNE.around(error=connection_lost, lost=connection_lost)

    def _require_table(self, connection: Connection) -> None:
        if not has_table(connection, self._schema):
            self._create(connection)
        require_table(connection, self._schema, location=self.location)

    def _create(self, connection: Connection) -> None:
        with CREATE.around(error=connection_lost, lost=connection_lost):
            self._database.begin(connection)
            connection.execute(TAKE_LOCK)
            require_schema(connection, self._schema)
            if not has_table(connection, self._schema):
                connection.execute(self._sql.create_ledger, ())
                connection.execute(self._sql.create_history, ())
            self._database.commit(connection)
