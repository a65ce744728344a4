"""SQL of the sqlite sink. When a statement runs is decided elsewhere.

The user's file has two tables of Penstock's own: `penstock_marker` with one row per pipeline and sink, and `penstock_batch` with
one row for each of the last batches. Users may read both with their own SQL. Digests are 16 hexadecimal digits, because they do
not fit SQLite's integers. `main.` rules out a temporary table of the same name. Every user-given name goes through `quoted`.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import Usage
from penstock.sink.table import table_statements
from penstock.sink.table.history import VALID_FROM, VALID_TO
from penstock.sink.table.marker_store import (
    BATCH_TABLE,
    DBAPI_MARKER_TABLE,
    MARKER_TABLE,
    OWNERS_BY_DBAPI,
    MarkerStatements,
)

OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, "penstock_ledger", "penstock_lease"})

BEGIN_READ = "BEGIN"
WRITE_AHEAD = "PRAGMA journal_mode = WAL"
SYNC_EVERY_COMMIT = "PRAGMA synchronous = EXTRA"
READ_ONLY = "PRAGMA query_only = ON"


@dataclass(frozen=True, slots=True)
class OwnStatements(MarkerStatements):
    """The statements about Penstock's own tables."""

    options = " WITHOUT ROWID"
    text, number = "TEXT", "INTEGER"
    types: ClassVar[Mapping[str, str]] = {"format_version": "INTEGER"}
    now = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
    upserts = True

    def named(self, table: str) -> str:
        return f"main.{table}"

    def bound(self, name: str) -> str:
        return f":{name}"

    @property
    def owners(self) -> str:
        return "SELECT pipeline, sink FROM main.penstock_marker WHERE table_name = :table COLLATE NOCASE"


OWNERS_OF_DBAPI = OWNERS_BY_DBAPI.format(schema="'main'", marker=f"main.{DBAPI_MARKER_TABLE}")

TABLE_KIND = "SELECT type, sql FROM main.sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')"
TABLE_STRICT = "SELECT strict FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE"
TABLE_COLUMNS = 'SELECT name, type, "notnull", pk, hidden, dflt_value FROM pragma_table_xinfo(?) ORDER BY cid'
TABLE_UNIQUES = 'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial'
INDEX_COLUMNS = "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno"

DROP_DISPLACED = (
    "DROP TRIGGER IF EXISTS temp.penstock_displacing",
    "DROP TRIGGER IF EXISTS temp.penstock_deleting",
    "DROP TRIGGER IF EXISTS temp.penstock_outdating",
    "DROP TABLE IF EXISTS temp.penstock_displaced",
    "DROP TABLE IF EXISTS temp.penstock_outdated",
)


DROP_KEYS = "DROP TABLE IF EXISTS temp.penstock_keys"


def quoted(name: str) -> str:
    """Return `name` as an SQL identifier. Raises Usage for a name that SQLite cannot hold."""
    if not name or "\0" in name:
        raise Usage(f"SQLite cannot name a table or column {name!r}.", remedy="Rename it.")
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class TableStatements(table_statements.TableStatements):
    """The statements about the user's table. SQLite's names ignore case. `sequence_by`: as in `StagedTableStatements`."""

    sequence_by: str | None = None
    null = ""

    def quoted(self, name: str) -> str:
        return quoted(name)

    @property
    def name(self) -> str:
        return f"main.{quoted(self.table)}"

    def read(self) -> str:
        """Select all rows. Columns are named with the table: alone, a quoted name of no column is a text for SQLite."""
        return f"SELECT {self._selected('t')} FROM {self.name} AS t"

    def _in_key(self, name: str) -> bool:
        return name.lower() in map(str.lower, self.key)

    def insert(self, rows: int) -> str:
        """Insert that many rows per execution. A conflict is an error, whatever ON CONFLICT clause the table has."""
        return f"INSERT OR ABORT INTO {self.name} ({self._list(self.columns)}) VALUES {self._places(rows)}"

    def upsert(self, rows: int) -> str:
        """Insert rows; if the table has a row with the key, update its other columns, unless that row is newer."""
        changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in self.others or self.key)
        return f"{self.insert(rows)} ON CONFLICT ({self._list(self.key)}) DO UPDATE SET {changes}{self._unless_older}"

    def insert_if_absent(self, rows: int) -> str:
        return f"{self.insert(rows)} ON CONFLICT ({self._list(self.key)}) DO NOTHING"

    def delete(self) -> str:
        """Delete the row with the key, if there is one."""
        same = " AND ".join(f"{quoted(name)} = ? COLLATE BINARY" for name in self.key)
        return f"DELETE FROM {self.name} WHERE {same}"

    def create_noted(self) -> Sequence[str]:
        """Create temporary tables for rows of the table that are replaced, or rows of the batch that are skipped."""
        empty = f"SELECT {self._list(self.columns)} FROM {self.name} WHERE 0"
        return [f"CREATE TEMP TABLE {table} AS {empty}" for table in ("penstock_displaced", "penstock_outdated")]

    def note_replaced(self) -> str:
        """Create a trigger of this connection that saves each row that an upsert replaces, once.

        It sets columns of the rows; a trigger of the user's may set others afterwards.
        """
        return f"""
            CREATE TEMP TRIGGER penstock_displacing AFTER UPDATE OF {self._list(self.columns)} ON {self.name}
            BEGIN INSERT INTO penstock_displaced SELECT {self._list(self.columns, "OLD")}; END
        """

    def note_deleted(self) -> str:
        """Create a trigger of this connection that saves each row that is deleted."""
        return f"""
            CREATE TEMP TRIGGER penstock_deleting AFTER DELETE ON {self.name}
            BEGIN INSERT INTO penstock_displaced SELECT {self._list(self.columns, "OLD")}; END
        """

    def note_skipped(self) -> str:
        """Create a trigger of this connection that saves each row that an insert skips because the table has its key."""
        return f"""
            CREATE TEMP TRIGGER penstock_displacing BEFORE INSERT ON {self.name}
            WHEN EXISTS (SELECT 1 FROM {self.name} WHERE {self._same_as_new})
            BEGIN INSERT INTO penstock_displaced SELECT {self._list(self.columns, "NEW")}; END
        """

    def note_outdated(self) -> str:
        """Create a trigger of this connection that saves each row that is not written because the table's is newer."""
        return f"""
            CREATE TEMP TRIGGER penstock_outdating BEFORE INSERT ON {self.name}
            WHEN EXISTS (SELECT 1 FROM {self.name} WHERE {self._same_as_new} AND {self._is_older("NEW")})
            BEGIN INSERT INTO penstock_outdated SELECT {self._list(self.columns, "NEW")}; END
        """

    def read_displaced(self) -> str:
        return f"SELECT {self._list(self.columns)} FROM temp.penstock_displaced"

    def read_outdated(self) -> str:
        return f"SELECT {self._list(self.columns)} FROM temp.penstock_outdated"

    def create_keys(self, columns: Sequence[str]) -> str:
        """Create a temporary table for keys of a batch, whose columns convert values as those of the table do."""
        return f"CREATE TEMP TABLE penstock_keys AS SELECT {self._list(columns)} FROM {self.name} WHERE 0"

    def insert_keys(self, columns: Sequence[str]) -> str:
        return f"INSERT INTO temp.penstock_keys VALUES ({', '.join('?' * len(columns))})"

    def read_compared(self, *, since: bool) -> str:
        """Select the table's rows with a key of the batch. `since`: as in `StagedTableStatements`."""
        same = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)} COLLATE BINARY" for name in self.key)
        to, start = quoted(VALID_TO), quoted(VALID_FROM)
        still = f" AND (t.{to} IS NULL OR t.{to} >= s.{start})" if since else ""
        return f"SELECT {self._list(self.columns, 't')} FROM temp.penstock_keys s JOIN {self.name} t ON {same}{still}"

    @property
    def _same_as_new(self) -> str:
        return " AND ".join(f"{quoted(name)} = NEW.{quoted(name)} COLLATE BINARY" for name in self.key)

    @property
    def _unless_older(self) -> str:
        """Return ` WHERE`, and the condition that the row of an upsert is as new as the table's; nothing without a sequence."""
        return "" if self.sequence_by is None else f" WHERE ({self._is_older('excluded')}) IS NOT TRUE"

    def _is_older(self, new: str) -> str:
        """Return the condition that the row `new` is older than the table's. NULL there is older than every value."""
        column = quoted(self.sequence_by or "")
        return f"{new}.{column} < {column} COLLATE BINARY"

    def _places(self, rows: int) -> str:
        row = "(" + ", ".join("?" * len(self.columns)) + ")"
        return ", ".join([row] * rows)
