"""All SQL of the sqlserver sink.

Two tables of Penstock lie in the schema of the user's table: `penstock_marker` with one row per pipeline and sink, and
`penstock_batch` with one row for each of the last batches. Both are meant to be read with the user's own SQL. Digests are 16
hexadecimal digits, because they do not fit a bigint. Names are in brackets, because some are keywords of SQL.

The fence is the marker's row, read `WITH (UPDLOCK, HOLDLOCK)`: the newest committed one, even where the database uses
snapshots, and nobody else can read it so before this transaction ends. HOLDLOCK also locks the place of a missing row. Rows of
the user's table that are read before they are written are read in the same way: until the transaction ends, nobody else can
change these rows or fill the gaps between them.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.sink.table.marker_store import BATCH_TABLE, MARKER_TABLE, MarkerStatements
from penstock.sink.table.table_statements import StagedTableStatements
from penstock.sql.table_name import Naming

_NAMING = Naming(database="SQL Server", default_schema="dbo", most=128, unit="characters")

split_name, require_name = _NAMING.split, _NAMING.require

OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, "penstock_ledger", "penstock_history", "penstock_offsets"})
STAGE = "#penstock_stage"
EXACT = "Latin1_General_100_BIN2"
"""The collation that takes no two texts for equal, except for blanks at the end, which SQL Server never compares."""

_KEPT = "WITH (UPDLOCK, HOLDLOCK)"
DROP_STAGE = f"DROP TABLE IF EXISTS {STAGE}"
"""A staging table lives as long as the session."""
COUNT_STAGE = f"SELECT COUNT(*) FROM {STAGE}"

_SETTINGS = (
    *("XACT_ABORT ON", "IMPLICIT_TRANSACTIONS OFF", "NOCOUNT OFF", "ROWCOUNT 0", "DEADLOCK_PRIORITY NORMAL"),
    *("ANSI_NULLS ON", "ANSI_PADDING ON", "ANSI_WARNINGS ON", "ARITHABORT ON", "CONCAT_NULL_YIELDS_NULL ON"),
    *("NUMERIC_ROUNDABORT OFF", "QUOTED_IDENTIFIER ON", "TRANSACTION ISOLATION LEVEL READ COMMITTED"),
)
SESSION = " ".join(f"SET {setting};" for setting in _SETTINGS)
"""Any error rolls the whole transaction back, a value that would be cut is an error, and a deadlock may choose either side."""

BEGIN = "BEGIN TRANSACTION"
STATE = "SELECT XACT_STATE()"
COMMIT = "COMMIT TRANSACTION WITH (DELAYED_DURABILITY = OFF)"
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL SNAPSHOT"
SERIALIZABLE = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"
"""For a reader where the database keeps no snapshots: publishers wait for the reader."""

SERVER = """
SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(60)), delayed_durability_desc, snapshot_isolation_state
FROM sys.databases WHERE name = DB_NAME()
"""

SCHEMA_EXISTS = "SELECT 1 FROM sys.schemas WHERE name = %(schema)s"

TABLE_KIND = """
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '')
FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id
WHERE s.name = %(schema)s AND o.name = %(table)s
"""

TABLE_POLICIES = """
SELECT p.name
FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id
JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id
WHERE s.name = %(schema)s AND o.name = %(table)s AND p.is_enabled = 1
ORDER BY p.name
"""

TABLE_COLUMNS = """
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable,
       c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id
FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.types b ON b.user_type_id = c.system_type_id
WHERE s.name = %(schema)s AND o.name = %(table)s ORDER BY c.column_id
"""

TABLE_UNIQUES = """
SELECT i.index_id, c.name
FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0
JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE s.name = %(schema)s AND o.name = %(table)s
      AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0
ORDER BY i.index_id
"""

PRIVILEGES = "SELECT HAS_PERMS_BY_NAME(%(table)s, 'OBJECT', %(privilege)s)"


# --- names, as SQL Server compares them: most databases there ignore case


def folded(name: str) -> str:
    """Return the name as SQL Server compares it."""
    return name.lower()


def folded_name(name: str) -> tuple[str, str]:
    """Return schema and table, folded, from `table`, `schema.table` or parts in double quotes. Raise Usage."""
    schema, table = split_name(name)
    return folded(schema), folded(table)


def quoted(name: str) -> str:
    """Return the name as an SQL identifier in brackets."""
    return "[" + name.replace("]", "]]") + "]"


# --- sessions and Penstock's own tables


def waiting_at_most(milliseconds: int) -> str:
    """Return the statement that limits how long each statement of the session waits for locks."""
    return f"SET LOCK_TIMEOUT {milliseconds}"


@dataclass(frozen=True, slots=True)
class OwnStatements(MarkerStatements):
    """The statements about Penstock's own tables in `schema`."""

    creating = "CREATE TABLE"
    null = " NULL"
    text = "nvarchar(max)"
    types: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("pipeline", "sink"), f"nvarchar(200) COLLATE {EXACT}"),
        "table_name": "nvarchar(600)",
        "write": "nvarchar(32)",
        "format_version": "int",
        "query_id": "nvarchar(200)",
        "digest": "char(16)",
        "published_at": "datetime2(6)",
        "ledger_id": "char(32)",
    }
    adding = "ADD"
    now = "SYSUTCDATETIME()"
    lock_hint = "WITH (UPDLOCK, HOLDLOCK, ROWLOCK) "
    percent = "%%"

    def named(self, table: str) -> str:
        return f"{quoted(self.schema)}.{quoted(table)}"

    def quoted(self, name: str) -> str:
        return quoted(name)

    @property
    def make_marker(self) -> str:
        absent = f"NOT EXISTS (SELECT 1 FROM {self.marker} {_KEPT} WHERE {self.which})"
        return f"{self._into_marker()} SELECT {self._values} WHERE {absent}"


# --- the user's table


@dataclass(frozen=True, slots=True)
class TableStatements(StagedTableStatements):
    """The statements about the user's table and the temporary staging table beside it."""

    stage = STAGE
    primary_key = "PRIMARY KEY NONCLUSTERED"
    deleting, staying = "{} = 1", "{} = 0"
    kept = f" {_KEPT}"

    def quoted(self, name: str) -> str:
        return quoted(name)

    @property
    def _number(self) -> str:
        return quoted(self.number)

    def create_stage(self, declared: Sequence[str]) -> str:
        """Create the staging table, which nobody else sees."""
        return f"CREATE TABLE {STAGE} ({self._number} bigint NOT NULL, {', '.join(self._staged_defined(declared))})"

    def hold(self) -> str:
        return f"SELECT TOP (1) 1 FROM {self.name} WITH (REPEATABLEREAD)"

    # --- by key

    def read_unchosen(self, *, last: bool) -> str:
        """Read the staged rows that are not the last, or the first, of their key, and those that delete."""
        which = f"NOT {self._is_chosen(last=last)}{self._or_deletes('s')}"
        return f"SELECT {self._list(self.columns, 's')} FROM {STAGE} AS s WHERE {which}"

    def lock_there(self) -> str:
        """Read the rows of the table that have a key of the batch; nobody else can change or add such rows from now on."""
        return (
            f"SELECT {self._list(self.columns, 't')} FROM {self.name} AS t {_KEPT} "
            f"JOIN {STAGE} AS s ON {self._same('t', 's')} WHERE {self._is_chosen(last=True)}"
        )

    def lock_skipped(self) -> str:
        """Read the first staged row of each key that the table has; nobody else can add or remove such keys from now on."""
        return f"SELECT {self._list(self.columns, 's')} {self._first} AND {self._is_there}"

    def upsert(self) -> str:
        """Move the last staged row of each key, unless it deletes; it replaces the other columns of a row with the same key."""
        changes = ", ".join(f"t.{self.quoted(name)} = s.{self.quoted(name)}" for name in self.others or self.key)
        which = f"{self._is_chosen(last=True)}{self._stays('s')}"
        chosen = f"SELECT {self._list(self.columns, 's')} FROM {STAGE} AS s WHERE {which}"
        return (
            f"MERGE INTO {self.name} WITH (HOLDLOCK) AS t USING ({chosen}) AS s ON {self._same('t', 's')} "
            f"WHEN MATCHED THEN UPDATE SET {changes} "
            f"WHEN NOT MATCHED BY TARGET THEN INSERT ({self._list(self.columns)}) VALUES ({self._list(self.columns, 's')});"
        )

    def delete(self) -> str:
        """Delete the rows of the table for whose key the last staged row deletes."""
        which = f"{self._same(self.name, 's')} AND {self._is_chosen(last=True)} AND {self._deletes('s')}"
        return f"DELETE FROM {self.name} WHERE EXISTS (SELECT 1 FROM {STAGE} AS s WHERE {which})"

    def insert_if_absent(self) -> str:
        """Move the first staged row of each key that the table lacks."""
        chosen = f"SELECT {self._list(self.columns, 's')} {self._first} AND NOT {self._is_there}"
        return f"INSERT INTO {self.name} ({self._list(self.columns)}) {chosen}"

    @property
    def _first(self) -> str:
        return f"FROM {STAGE} AS s WHERE {self._is_chosen(last=False)}"

    @property
    def _is_there(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self.name} AS t {_KEPT} WHERE {self._same('t', 's')})"

    def _is_chosen(self, *, last: bool) -> str:
        return f"s.{self._number} IN ({self._chosen(last=last)})"
