"""All SQL of the redshift sink.

Redshift does not enforce keys, has no ON CONFLICT and locks no single row. It has locks on whole tables, and transactions that
see what was committed before their first statement that reads. So every publication begins with LOCK of `penstock_fence`, a
table without rows that nobody else has a reason to name. Readers of `penstock_marker` do not wait, and no publication waits for
readers that leave a transaction open.

Three tables of Penstock lie in the schema of the user's table: the fence, `penstock_marker` with one row per pipeline and sink,
and `penstock_batch` with one row for each of the last batches. The latter two are meant to be read with the user's own SQL.
Digests are 16 hexadecimal digits, because they do not fit a bigint. A text has at most 65535 bytes.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.sink.redshift.storage import MOST_TEXT_BYTES
from penstock.sink.table.marker_store import BATCH_TABLE, MARKER_TABLE, MarkerStatements
from penstock.sink.table.table_statements import StagedTableStatements
from penstock.sql.table_name import Naming

_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_NAMING = Naming(database="Redshift", default_schema="public", most=127)

FENCE_TABLE = "penstock_fence"
OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, FENCE_TABLE, "penstock_ledger", "penstock_history", "penstock_offsets"})

STAGE = "penstock_stage"
DROP_STAGE = f"DROP TABLE {STAGE}"
"""For after the load only. Before the staging table exists, which ends with the session, the name may mean another table."""

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
"""The query that Redshift's own clients send. A default that begins with "identity" marks a column that only Redshift fills."""

MAY_STAGE = "SELECT has_database_privilege(current_database(), 'TEMP'), current_user"
PRIVILEGES = "SELECT has_table_privilege(%(table)s, %(privilege)s)"

_NUMBERS = {
    "format_version": "integer",
    **dict.fromkeys(("position", "generation", "batch_id", "rows", "rows_decided", "rows_before", "rows_after"), "bigint"),
}


# --- names, as Redshift compares them: in lower case, unless a cluster is configured otherwise


def folded(name: str) -> str:
    """Return the name as Redshift compares it."""
    return name.translate(_SMALL)


def require_name(name: str) -> str:
    """Return `name`, folded, if Redshift can hold it. Raise Usage."""
    return folded(_NAMING.require(name))


def split_name(name: str) -> tuple[str, str]:
    """Return schema and table, folded, from `table`, `schema.table` or parts in double quotes. Raise Usage."""
    schema, table = _NAMING.split(name)
    return folded(schema), folded(table)


def quoted(name: str) -> str:
    """Return the name as a quoted SQL identifier. It is folded, since quotes keep its case wherever case counts."""
    return '"' + folded(name).replace('"', '""') + '"'


# --- sessions and Penstock's own tables


def waiting_at_most(milliseconds: int) -> str:
    """Return the statement that limits every statement's time: the wait for a lock has no limit of its own."""
    return f"SET statement_timeout TO {milliseconds}"


def declare(query: str) -> str:
    """Return the statement that opens a cursor over `query` for FETCH."""
    return f"DECLARE penstock_scan CURSOR FOR {query}"


@dataclass(frozen=True, slots=True)
class OwnStatements(MarkerStatements):
    """The statements about Penstock's own tables in `schema`. No key is declared: Redshift would rely on it unenforced."""

    keyed = False
    text = f"varchar({MOST_TEXT_BYTES})"
    types: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("pipeline", "sink", "query_id"), "varchar(255)"),
        "table_name": "varchar(600)",
        "write": "varchar(32)",
        "format_version": "integer",
        "digest": "char(16)",
        "published_at": "timestamp",
        "ledger_id": "varchar(32)",
    }
    now = "GETDATE()"
    no_ledger_id = "CAST(NULL AS varchar)"

    def named(self, table: str) -> str:
        return f"{quoted(self.schema)}.{quoted(table)}"

    def bound(self, name: str) -> str:
        return f"CAST(%({name})s AS {_NUMBERS[name]})" if name in _NUMBERS else f"%({name})s"

    @property
    def creates(self) -> Mapping[str, str]:
        fence = f"{self.creating} {self.named(FENCE_TABLE)} (nothing integer)"
        return {FENCE_TABLE: fence, **super(OwnStatements, self).creates}

    @property
    def fence(self) -> tuple[str, ...]:
        """Lock the fence table before the first read, at which the snapshot begins; then end the timeout of this wait."""
        return f"LOCK TABLE {self.named(FENCE_TABLE)}", PATIENT


# --- the user's table


@dataclass(frozen=True, slots=True)
class TableStatements(StagedTableStatements):
    """The statements about the user's table and the staging table. No key is declared: Redshift would rely on it unenforced."""

    stage = STAGE
    primary_key = None
    null = ""

    def quoted(self, name: str) -> str:
        return quoted(name)

    def create_stage(self, declared: Sequence[str]) -> str:
        """Create the staging table, which nobody else sees."""
        return f"CREATE TEMPORARY TABLE {STAGE} ({self.number} bigint NOT NULL, {', '.join(self._staged_defined(declared))})"

    def fill_stage(self, bound: Sequence[str], rows: int) -> str:
        """Insert `rows` rows at once, each with its number and then its values in the expressions `bound`."""
        row = f"({', '.join(['CAST(%s AS bigint)', *bound])})"
        return f"INSERT INTO {STAGE} ({self.number}, {self._list(self.staged)}) VALUES {', '.join([row] * rows)}"

    # --- by key

    def read_unchosen(self, *, last: bool) -> str:
        """Read the staged rows that are not the last, or the first, of their key, and those that delete."""
        which = f"s.{self.number} NOT IN ({self._chosen(last=last)}){self._or_deletes('s')}"
        return f"SELECT {self._selected('s')} FROM {STAGE} s WHERE {which}"

    def read_there(self) -> str:
        """Read the rows of the table that have a key of the batch."""
        keys = f"SELECT DISTINCT {self._list(self.key)} FROM {STAGE}"
        return f"SELECT {self._selected('t')} FROM {self.name} t JOIN ({keys}) s ON {self._same('t', 's')}"

    def read_skipped(self) -> str:
        """Read the first staged row of each key that the table has."""
        return f"SELECT {self._selected('s')} {self._first} AND {self._is_there}"

    def delete_there(self) -> str:
        """Delete the rows of the table that have a key of the batch."""
        return f"DELETE FROM {self.name} USING {STAGE} WHERE {self._same(self.name, STAGE)}"

    def insert_chosen(self) -> str:
        """Move the last staged row of each key, unless it deletes."""
        return f"{self.insert()} WHERE {self.number} IN ({self._chosen(last=True)}){self._stays(STAGE)}"

    def insert_if_absent(self) -> str:
        """Move the first staged row of each key that the table lacks."""
        columns = self._list(self.columns, "s")
        return f"INSERT INTO {self.name} ({self._list(self.columns)}) SELECT {columns} {self._first} AND NOT {self._is_there}"

    @property
    def _first(self) -> str:
        return f"FROM {STAGE} s WHERE s.{self.number} IN ({self._chosen(last=False)})"

    @property
    def _is_there(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self.name} t WHERE {self._same('t', 's')})"
