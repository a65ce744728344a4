"""SQL that the postgres sink and ledger share: about transactions, the server and its catalog."""

from psycopg.sql import SQL, Placeholder
from typing_extensions import LiteralString

COMMIT = SQL("COMMIT")


def where_known(setting: LiteralString, value: LiteralString) -> LiteralString:
    """Return an expression that sets `setting` for the transaction, on servers that have it."""
    return f"CASE WHEN current_setting('{setting}', true) IS NOT NULL THEN set_config('{setting}', '{value}', true) END"


BEGIN = SQL(f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SELECT set_config('lock_timeout', {{lock_timeout}}, true), set_config('statement_timeout', '0', true),
       {where_known("transaction_timeout", "0")},
       set_config('idle_in_transaction_session_timeout', {{idle_timeout}}, true), set_config('timezone', 'UTC', true),
       set_config('row_security', 'off', true),
       CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
""")
"""Opens a transaction that bounds waits for locks, ends when the driver stalls, and commits durably whatever the role's default.

BEGIN and settings are one message: a round trip costs a transaction more than either does on the server.
"""

BEGIN_READ = SQL(f"""
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT set_config('statement_timeout', '0', true), {where_known("transaction_timeout", "0")},
       set_config('idle_in_transaction_session_timeout', '0', true), set_config('row_security', 'off', true)
""")
"""For a reader that counts and hashes a whole table, whatever the role's defaults. Rows that a policy hides raise an error."""

SERVER = SQL("""
SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('server_encoding'),
       current_setting('default_transaction_read_only')
""")

ENCODING = "UTF8"

TAKE_LOCK = SQL("SELECT pg_catalog.pg_advisory_xact_lock(hashtextextended('penstock', 0))")
"""Serializes preparations, which would collide in the catalog. It is no fence: it only makes one wait."""

SCHEMA_EXISTS = SQL("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s")

TABLE_KIND = SQL("""
SELECT c.oid, c.relkind::text, c.relpersistence::text, c.relrowsecurity, c.relhasrules
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
""")

_NAMES = """
ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = i.indrelid AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])) AS names
"""
_ARBITERS = """
FROM pg_catalog.pg_index i
WHERE i.indrelid = {oid} AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
"""
_IS_BLIND = """
EXISTS (SELECT 1 FROM pg_catalog.pg_collation o WHERE o.oid = ANY(i.indcollation::oid[]) AND NOT o.collisdeterministic)
"""

UNIQUES = SQL(f"SELECT {_NAMES} {_ARBITERS} AND NOT {_IS_BLIND}")
"""The sets of columns that identify a row and that ON CONFLICT can name.

An index with a nondeterministic collation is left out: it takes different texts for equal.
"""

BLIND_UNIQUES = SQL(f"""
SELECT (SELECT pg_catalog.quote_ident(s.nspname) || '.' || pg_catalog.quote_ident(x.relname)
        FROM pg_catalog.pg_class x JOIN pg_catalog.pg_namespace s ON s.oid = x.relnamespace WHERE x.oid = i.indexrelid) AS index,
       {_NAMES} {_ARBITERS} AND {_IS_BLIND}
""")  # noqa: S608 - all parts are our own
"""The indexes that are left out of `UNIQUES`, by their names in SQL: ON CONFLICT goes by them, too."""

TABLE_UNIQUES = UNIQUES.format(oid=Placeholder())
