"""The `DatabaseLedger` of PostgreSQL.

Source: the manual of PostgreSQL, "Read Committed Isolation Level": an insert waits for a concurrent insert of the same key, and
each statement sees what was committed before it began.
"""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName
from penstock.errors import Failed, GuaranteeTooWeak
from penstock.ledger.database import HISTORY_VIEW, KEY, LEDGER_TABLE, DatabaseLedger, LedgerStatements
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

_HISTORY = """
CREATE VIEW {history} AS
SELECT ledger.pipeline, ledger.position, (read.entry ->> 'generation')::bigint AS generation,
       to_timestamp((read.entry ->> 'written_at_ms')::bigint / 1000.0) AS written_at,
       read.entry #>> '{{body,kind}}' AS kind,
       coalesce(read.entry #>> '{{body,owner}}', read.entry #>> '{{body,operator}}') AS by_whom,
       coalesce(read.entry #>> '{{body,decision,query_id}}', read.entry #>> '{{body,query_id}}') AS query_id,
       (read.entry #>> '{{body,decision,batch_id}}')::bigint AS batch_id,
       (read.entry #>> '{{body,decision,rows_in}}')::bigint AS rows_in,
       read.entry #> '{{body,decision,offsets}}' AS offsets
FROM {ledger} AS ledger CROSS JOIN LATERAL (SELECT ledger.entry::jsonb AS entry OFFSET 0) AS read
WHERE read.entry -> 'body' IS NOT NULL
"""
"""`OFFSET 0` makes PostgreSQL parse each entry once. Rows of the self-test have no body."""
_TEXTS = {
    "create_ledger": "CREATE TABLE {ledger} (pipeline text NOT NULL, position bigint NOT NULL, entry text NOT NULL, "
    "PRIMARY KEY (pipeline, position))",
    "create_history": _HISTORY,
    "tail": "SELECT position, entry FROM {ledger} WHERE pipeline = %s ORDER BY position DESC LIMIT 1",
    "at": "SELECT position, entry FROM {ledger} WHERE pipeline = %s AND position = %s",
    "newest_positions": "SELECT position FROM {ledger} WHERE pipeline = %s ORDER BY position DESC LIMIT 2",
    # Waits for a concurrent insert at the same position. Returns no row if the position is taken.
    "insert": "INSERT INTO {ledger} (pipeline, position, entry) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING position",
    "prune": "DELETE FROM {ledger} WHERE pipeline = %s AND position < %s",
    "prune_proofs": "DELETE FROM {ledger} WHERE starts_with(pipeline, %(prefix)s) AND position < %(below)s",
}


def _statements_in(schema: str) -> LedgerStatements:
    """Return the statements for the table in `schema`."""
    escaped = schema.replace("%", "%%")  # all statements are executed with a sequence of values, even an empty one
    names = {"ledger": Identifier(escaped, LEDGER_TABLE), "history": Identifier(escaped, HISTORY_VIEW)}
    return LedgerStatements(**{statement: SQL(text).format(**names) for statement, text in _TEXTS.items()})


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
        connect = partial(Database, url, application=f"penstock:{pipeline}", lock_timeout_s=lock_timeout_s)
        super().__init__(connect, _statements_in(schema), pipeline=pipeline)

    @property
    def location(self) -> str:
        where = "" if self._schema == DEFAULT_SCHEMA else f", schema {self._schema}"
        return f"postgresql://{self._database.place}{where}"

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
