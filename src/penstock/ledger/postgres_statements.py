"""SQL statements of the ledger in PostgreSQL.

One table holds the ledgers of many pipelines, distinguished by the first column of its key. `entry` is text, so that its bytes
stay as written. `penstock_history` is for people and their programs; Penstock never reads it.
"""

from psycopg.sql import SQL, Identifier

from penstock.ledger.database import HISTORY_VIEW, LEDGER_TABLE, LedgerStatements

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


def statements_in(schema: str) -> LedgerStatements:
    """Return the statements for the table in `schema`."""
    escaped = schema.replace("%", "%%")  # all statements are executed with a sequence of values, even an empty one
    names = {"ledger": Identifier(escaped, LEDGER_TABLE), "history": Identifier(escaped, HISTORY_VIEW)}
    return LedgerStatements(**{statement: SQL(text).format(**names) for statement, text in _TEXTS.items()})
