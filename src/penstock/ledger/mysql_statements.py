"""SQL statements of the ledger in MySQL.

One table holds the ledgers of many pipelines, distinguished by the first column of its key. `entry` is text, so that its bytes
stay as written: the server's JSON type would sort its keys.
"""

# ruff: noqa: S608 - every name in a statement is our own, every value is bound

from penstock.ledger.database import LedgerStatements
from penstock.sql.mysql.statements import OWN_OPTIONS

_TEXT = "JSON_VALUE(ledger.entry, '$.{}')"
_BY_WHOM = f"COALESCE({_TEXT.format('body.owner')}, {_TEXT.format('body.operator')})"
_QUERY = f"COALESCE({_TEXT.format('body.decision.query_id')}, {_TEXT.format('body.query_id')})"
_MICROSECONDS = f"CAST({_TEXT.format('written_at_ms')} AS SIGNED) * 1000"


STATEMENTS = LedgerStatements(
    create_ledger="CREATE TABLE penstock_ledger (pipeline varchar(255) NOT NULL, position bigint NOT NULL, "
    f"entry longtext NOT NULL, PRIMARY KEY (pipeline, position)) {OWN_OPTIONS}",
    # Names with a slash belong to self-tests.
    create_history=f"""
CREATE SQL SECURITY INVOKER VIEW penstock_history AS
SELECT ledger.pipeline, ledger.position, CAST({_TEXT.format("generation")} AS SIGNED) AS generation,
       TIMESTAMPADD(MICROSECOND, {_MICROSECONDS}, TIMESTAMP '1970-01-01 00:00:00') AS written_at,
       {_TEXT.format("body.kind")} AS kind, {_BY_WHOM} AS by_whom, {_QUERY} AS query_id,
       CAST({_TEXT.format("body.decision.batch_id")} AS SIGNED) AS batch_id,
       CAST({_TEXT.format("body.decision.rows_in")} AS SIGNED) AS rows_in,
       JSON_EXTRACT(ledger.entry, '$.body.decision.offsets') AS offsets
FROM penstock_ledger AS ledger
WHERE ledger.pipeline NOT LIKE '%/%'
""",
    tail="SELECT position, entry FROM penstock_ledger WHERE pipeline = %s ORDER BY position DESC LIMIT 1",
    at="SELECT position, entry FROM penstock_ledger WHERE pipeline = %s AND position = %s",
    newest_positions="SELECT position FROM penstock_ledger WHERE pipeline = %s ORDER BY position DESC LIMIT 2",
    # Waits for a concurrent insert at the same position; raises if the position is taken.
    insert="INSERT INTO penstock_ledger (pipeline, position, entry) VALUES (%s, %s, %s)",
    prune="DELETE FROM penstock_ledger WHERE pipeline = %s AND position < %s",
    # A range of the key, which locks no other rows: the rest of a name is hexadecimal, so it sorts below 'g'.
    prune_proofs="DELETE FROM penstock_ledger WHERE pipeline > %(prefix)s AND pipeline < CONCAT(%(prefix)s, 'g') "
    "AND position < %(below)s",
)
