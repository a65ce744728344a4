"""All SQL of the redshift sink about the session, transactions, the catalog and Penstock's own tables.

Redshift does not enforce keys, has no ON CONFLICT and locks no single row. It has locks on whole tables, and transactions that
see what was committed before their first statement that reads. So every publication begins with LOCK of `penstock_fence`, a
table without rows that nobody else has a reason to name. Readers of `penstock_marker` do not wait, and no publication waits for
readers that leave a transaction open.

Three tables of Penstock lie in the schema of the user's table: the fence, `penstock_marker` with one row per pipeline and sink,
and `penstock_batch` with one row for each of the last batches. The latter two are meant to be read with the user's own SQL.
Digests are 16 hexadecimal digits, because they do not fit a bigint. A text has at most 65535 bytes.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from dataclasses import dataclass

from penstock.sink.redshift.names import quoted
from penstock.sink.table.marker_store import BATCH_TABLE, MARKER_TABLE, MarkerSql, MarkerStatements

FENCE_TABLE = "penstock_fence"
OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, FENCE_TABLE, "penstock_ledger", "penstock_history", "penstock_offsets"})
MOST_BYTES = 65_535
"""The most bytes of a text."""

SESSION = ("SET timezone TO 'UTC'", "SET datestyle TO 'ISO'")
BEGIN = "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE"
BEGIN_READ = "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY"
COMMIT = "COMMIT"

PATIENT = "SET statement_timeout TO 0"
FETCH = "FETCH FORWARD 1000 FROM penstock_scan"
"""A cluster of one node returns no more rows at once."""
CLOSE = "CLOSE penstock_scan"

SCHEMA_EXISTS = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s"

TABLE_KIND = """
SELECT c.relkind
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(table)s
"""

TABLE_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_catalog.pg_get_expr(d.adbin, d.adrelid)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE n.nspname = %(schema)s AND c.relname = %(table)s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
"""What clients of Redshift ask, too. A default that begins with "identity" marks a column that only Redshift fills."""

MAY_STAGE = "SELECT has_database_privilege(current_database(), 'TEMP'), current_user"
PRIVILEGES = "SELECT has_table_privilege(%(table)s, %(privilege)s)"

_MARKER_COLUMNS = """
    pipeline varchar(255) NOT NULL, sink varchar(255) NOT NULL, table_name varchar(600) NOT NULL, write varchar(32) NOT NULL,
    format_version integer NOT NULL,
    position bigint NOT NULL, generation bigint, query_id varchar(255), batch_id bigint, offsets varchar(65535),
    schema varchar(65535),
    rows_decided bigint NOT NULL, digest_decided char(16) NOT NULL,
    rows_before bigint NOT NULL, digest_before char(16) NOT NULL,
    rows_after bigint NOT NULL, digest_after char(16) NOT NULL,
    published_at timestamp NOT NULL, ledger_id varchar(32)
"""

_BATCH_COLUMNS = """
    pipeline varchar(255) NOT NULL, sink varchar(255) NOT NULL, position bigint NOT NULL,
    generation bigint NOT NULL, query_id varchar(255) NOT NULL, batch_id bigint NOT NULL, offsets varchar(65535) NOT NULL,
    rows bigint NOT NULL, digest char(16) NOT NULL, published_at timestamp NOT NULL
"""

_NUMBERS = {
    "format_version": "integer",
    **dict.fromkeys(("position", "generation", "batch_id", "rows", "rows_decided", "rows_before", "rows_after"), "bigint"),
}


def waiting_at_most(milliseconds: int) -> str:
    """Return the statement that limits every statement's time: the wait for a lock has no limit of its own."""
    return f"SET statement_timeout TO {milliseconds}"


def declare(query: str) -> str:
    """Return the statement that opens a cursor over `query` for FETCH."""
    return f"DECLARE penstock_scan CURSOR FOR {query}"


@dataclass(frozen=True, slots=True)
class OwnStatements:
    """The statements about Penstock's own tables in `schema`."""

    schema: str

    def _of(self, text: str) -> str:
        names = {"marker": MARKER_TABLE, "batch": BATCH_TABLE, "fence": FENCE_TABLE}
        return text.format(**{name: f"{quoted(self.schema)}.{quoted(table)}" for name, table in names.items()})

    @property
    def creates(self) -> dict[str, str]:
        """Create each table if it is missing. No key is declared: Redshift would rely on it without enforcing it."""
        return {
            FENCE_TABLE: self._of("CREATE TABLE IF NOT EXISTS {fence} (nothing integer)"),
            BATCH_TABLE: self._of(f"CREATE TABLE IF NOT EXISTS {{batch}} ({_BATCH_COLUMNS})"),
            MARKER_TABLE: self._of(f"CREATE TABLE IF NOT EXISTS {{marker}} ({_MARKER_COLUMNS})"),
        }

    @property
    def add_ledger_id(self) -> str:
        """Add the column that an older Penstock did not create."""
        return self._of("ALTER TABLE {marker} ADD COLUMN ledger_id varchar(32)")

    @property
    def lock(self) -> str:
        """Exclude every other publisher until the end of the transaction, whose snapshot begins after the lock."""
        return self._of("LOCK TABLE {fence}")

    def marker_statements(self) -> MarkerStatements[str]:
        """Return the statements about markers, which do not lock: `lock` does."""
        sql = MarkerSql(marker=self._of("{marker}"), batch=self._of("{batch}"), now="GETDATE()", bound=_bound)
        return sql.statements(
            lock_marker=sql.read(),
            write_marker=f"UPDATE {sql.marker} SET {sql.changes} WHERE {sql.which}",
            make_marker=f"{sql.into_marker} VALUES ({sql.values})",
            no_ledger_id="CAST(NULL AS varchar)",
        )


def _bound(name: str) -> str:
    return f"CAST(%({name})s AS {_NUMBERS[name]})" if name in _NUMBERS else f"%({name})s"
