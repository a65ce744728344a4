"""SQL statements of the ledger in PostgreSQL.

One table holds the ledgers of many pipelines, distinguished by the first column of its key. `entry` is text, so that its bytes
stay as written. `penstock_history` is for people and their programs; Penstock never reads it.
"""

from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier

from penstock.ledger.database import HISTORY_VIEW, LEDGER_TABLE

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


@dataclass(frozen=True, slots=True)
class PostgresStatements:
    """The `LedgerStatements` of PostgreSQL, and its statements that create and insert, for the table in `schema`."""

    schema: str

    def _of(self, text: str) -> Composed:
        schema = self.schema.replace("%", "%%")  # all statements are executed with a sequence of values, even an empty one
        return SQL(text).format(ledger=Identifier(schema, LEDGER_TABLE), history=Identifier(schema, HISTORY_VIEW))

    @property
    def create_ledger(self) -> Composed:
        return self._of(
            "CREATE TABLE {ledger} (pipeline text NOT NULL, position bigint NOT NULL, entry text NOT NULL, "
            "PRIMARY KEY (pipeline, position))"
        )

    @property
    def create_history(self) -> Composed:
        return self._of(_HISTORY)

    @property
    def tail(self) -> Composed:
        return self._of("SELECT position, entry FROM {ledger} WHERE pipeline = %s ORDER BY position DESC LIMIT 1")

    @property
    def at(self) -> Composed:
        return self._of("SELECT position, entry FROM {ledger} WHERE pipeline = %s AND position = %s")

    @property
    def newest_positions(self) -> Composed:
        return self._of("SELECT position FROM {ledger} WHERE pipeline = %s ORDER BY position DESC LIMIT 2")

    @property
    def insert(self) -> Composed:
        """Waits for a concurrent insert at the same position. Returns no row if the position is taken."""
        return self._of(
            "INSERT INTO {ledger} (pipeline, position, entry) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING position"
        )

    @property
    def prune(self) -> Composed:
        return self._of("DELETE FROM {ledger} WHERE pipeline = %s AND position < %s")

    @property
    def prune_proofs(self) -> Composed:
        return self._of("DELETE FROM {ledger} WHERE starts_with(pipeline, %(prefix)s) AND position < %(below)s")
