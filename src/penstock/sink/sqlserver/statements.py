"""All SQL of the sqlserver sink about the session, transactions, the catalog and Penstock's own tables.

Two tables of Penstock lie in the schema of the user's table: `penstock_marker` with one row per pipeline and sink, and
`penstock_batch` with one row for each of the last batches. Both are meant to be read with the user's own SQL. Digests are 16
hexadecimal digits, because they do not fit a bigint. Names are in brackets, because some are keywords of SQL.

The fence is the marker's row, read `WITH (UPDLOCK, HOLDLOCK)`: the newest committed one, even where the database uses
snapshots, and nobody else can read it so before this transaction ends. HOLDLOCK also locks the place of a missing row.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from dataclasses import dataclass

from penstock.sink.sqlserver.names import quoted
from penstock.sink.table.marker_store import MarkerStatements

MARKER_TABLE, BATCH_TABLE = "penstock_marker", "penstock_batch"
OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, "penstock_ledger", "penstock_history", "penstock_offsets"})
STAGE = "#penstock_stage"
EXACT = "Latin1_General_100_BIN2"
"""The collation that takes no two texts for equal, except for blanks at the end, which SQL Server never compares."""

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
ROLLBACK = "ROLLBACK TRANSACTION"
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

_MARKER_COLUMNS = f"""
    [pipeline] nvarchar(200) COLLATE {EXACT} NOT NULL, [sink] nvarchar(200) COLLATE {EXACT} NOT NULL,
    [table_name] nvarchar(600) NOT NULL, [write] nvarchar(32) NOT NULL, [format_version] int NOT NULL,
    [position] bigint NOT NULL, [generation] bigint NULL, [query_id] nvarchar(200) NULL, [batch_id] bigint NULL,
    [offsets] nvarchar(max) NULL, [schema] nvarchar(max) NULL,
    [rows_decided] bigint NOT NULL, [digest_decided] char(16) NOT NULL,
    [rows_before] bigint NOT NULL, [digest_before] char(16) NOT NULL,
    [rows_after] bigint NOT NULL, [digest_after] char(16) NOT NULL,
    [published_at] datetime2(6) NOT NULL, [ledger_id] char(32) NULL,
    PRIMARY KEY ([pipeline], [sink])
"""

_BATCH_COLUMNS = f"""
    [pipeline] nvarchar(200) COLLATE {EXACT} NOT NULL, [sink] nvarchar(200) COLLATE {EXACT} NOT NULL,
    [position] bigint NOT NULL, [generation] bigint NOT NULL, [query_id] nvarchar(200) NOT NULL, [batch_id] bigint NOT NULL,
    [offsets] nvarchar(max) NOT NULL, [rows] bigint NOT NULL, [digest] char(16) NOT NULL, [published_at] datetime2(6) NOT NULL,
    PRIMARY KEY ([pipeline], [sink], [position])
"""

_WHICH = "[pipeline] = %(pipeline)s AND [sink] = %(sink)s"

_READ_MARKER = f"""
SELECT [format_version], [table_name], [write], [position], [generation], [query_id], [batch_id], [offsets], [schema],
       [rows_decided], [digest_decided], [rows_before], [digest_before], [rows_after], [digest_after], {{ledger_id}}
FROM {{marker}} {{hint}}WHERE {_WHICH}
"""

_CHANGE_MARKER = f"""
UPDATE {{marker}} SET
    [table_name] = %(table_name)s, [write] = %(write)s, [format_version] = %(format_version)s, [position] = %(position)s,
    [generation] = %(generation)s, [query_id] = %(query_id)s, [batch_id] = %(batch_id)s, [offsets] = %(offsets)s,
    [schema] = %(schema)s, [rows_decided] = %(rows_decided)s, [digest_decided] = %(digest_decided)s,
    [rows_before] = %(rows_before)s, [digest_before] = %(digest_before)s, [rows_after] = %(rows_after)s,
    [digest_after] = %(digest_after)s, [published_at] = SYSUTCDATETIME(),
    [ledger_id] = %(ledger_id)s
WHERE {_WHICH}
"""

_MAKE_MARKER = f"""
INSERT INTO {{marker}} (
    [pipeline], [sink], [table_name], [write], [format_version], [position], [generation], [query_id], [batch_id], [offsets],
    [schema], [rows_decided], [digest_decided], [rows_before], [digest_before], [rows_after], [digest_after], [published_at],
    [ledger_id]
)
SELECT %(pipeline)s, %(sink)s, %(table_name)s, %(write)s, %(format_version)s, %(position)s, %(generation)s, %(query_id)s,
       %(batch_id)s, %(offsets)s, %(schema)s, %(rows_decided)s, %(digest_decided)s, %(rows_before)s, %(digest_before)s,
       %(rows_after)s, %(digest_after)s, SYSUTCDATETIME(), %(ledger_id)s
WHERE NOT EXISTS (SELECT 1 FROM {{marker}} WITH (UPDLOCK, HOLDLOCK) WHERE {_WHICH})
"""

_WRITE_BATCH = """
INSERT INTO {batch} (
    [pipeline], [sink], [position], [generation], [query_id], [batch_id], [offsets], [rows], [digest], [published_at]
) VALUES (
    %(pipeline)s, %(sink)s, %(position)s, %(generation)s, %(query_id)s, %(batch_id)s, %(offsets)s, %(rows)s, %(digest)s,
    SYSUTCDATETIME()
)
"""


def waiting_at_most(milliseconds: int) -> str:
    """Return the statement that limits how long each statement of the session waits for locks."""
    return f"SET LOCK_TIMEOUT {milliseconds}"


@dataclass(frozen=True, slots=True)
class OwnStatements:
    """The statements about Penstock's own tables in `schema`."""

    schema: str

    def _named(self, text: str, schema: str, *, hint: str = "", ledger_id: str = "[ledger_id]") -> str:
        names = {"marker": MARKER_TABLE, "batch": BATCH_TABLE}
        return text.format(hint=hint, ledger_id=ledger_id, **{name: f"{schema}.{quoted(table)}" for name, table in names.items()})

    def _of(self, text: str, *, hint: str = "", ledger_id: str = "[ledger_id]") -> str:
        """Fill in the names of a statement with values, where the driver wants a literal % doubled."""
        return self._named(text, quoted(self.schema).replace("%", "%%"), hint=hint, ledger_id=ledger_id)

    @property
    def creates(self) -> dict[str, str]:
        """Create each table, by name."""
        return {
            MARKER_TABLE: self._named(f"CREATE TABLE {{marker}} ({_MARKER_COLUMNS})", quoted(self.schema)),
            BATCH_TABLE: self._named(f"CREATE TABLE {{batch}} ({_BATCH_COLUMNS})", quoted(self.schema)),
        }

    @property
    def add_ledger_id(self) -> str:
        """Add the column that an older Penstock did not create."""
        return self._named("ALTER TABLE {marker} ADD [ledger_id] char(32) NULL", quoted(self.schema))

    def marker_statements(self) -> MarkerStatements[str]:
        return MarkerStatements(
            read_marker=self._of(_READ_MARKER),
            read_unnamed=self._of(_READ_MARKER, ledger_id="NULL"),
            lock_marker=self._of(_READ_MARKER, hint="WITH (UPDLOCK, HOLDLOCK, ROWLOCK) "),
            write_marker=self._of(_CHANGE_MARKER),
            make_marker=self._of(_MAKE_MARKER),
            owners=self._of("SELECT [pipeline], [sink], [table_name] FROM {marker} ORDER BY [pipeline], [sink]"),
            newest_batch=self._of(f"SELECT MAX([position]) FROM {{batch}} WHERE {_WHICH}"),
            read_batch=self._of(
                "SELECT [query_id], [batch_id], [offsets], [rows], [digest] FROM {batch} "
                f"WHERE {_WHICH} AND [position] = %(position)s"
            ),
            write_batch=self._of(_WRITE_BATCH),
            forget_batches=self._of(f"DELETE FROM {{batch}} WHERE {_WHICH} AND [position] <= %(position)s"),
        )
