"""All SQL of the dbapi sink: only what every database with tables understands.

Two tables lie beside the user's, `penstock_dbapi_marker` and `penstock_dbapi_batch`; Penstock's native sinks have others. Their
names need no quotes anywhere. Users who want other column types create them themselves: docs/howto/dbapi.md has the statements.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.sink.dbapi.sql import Sql, Value, joined, statement
from penstock.sink.table.marker_store import DBAPI_MARKER_TABLE, MarkerStatements

MARKER_TABLE, BATCH_TABLE = DBAPI_MARKER_TABLE, "penstock_dbapi_batch"
NATIVE_MARKER_TABLE = "penstock_marker"
QUOTES: Final = (('"', '"'), ("`", "`"), ("[", "]"), ("", ""))
"""What begins and ends a quoted name. The last one, no quotes, is for databases that fold unquoted names."""

INSERT, INSERT_OR_ABORT = "INSERT INTO", "INSERT OR ABORT INTO"
"""The second is SQLite's: a conflict is an error, whatever the table declares. The first follows `ON CONFLICT REPLACE`."""
IS_SQLITE = Sql(("SELECT sqlite_version()",))
"""Fails in any other database."""

MOST_VALUES, MOST_ROWS = 900, 200
"""What SQLite takes in one statement: the smallest limits of all databases."""

CREATE_MARKER_TABLE = """CREATE TABLE penstock_dbapi_marker (
    pipeline VARCHAR(100) NOT NULL, sink VARCHAR(100) NOT NULL, table_name VARCHAR(500) NOT NULL, way VARCHAR(20) NOT NULL,
    format_version INTEGER NOT NULL,
    at_position BIGINT NOT NULL, generation BIGINT, query_id VARCHAR(100), batch_id BIGINT, offsets TEXT, row_schema TEXT,
    rows_decided BIGINT NOT NULL, digest_decided VARCHAR(16) NOT NULL,
    rows_before BIGINT NOT NULL, digest_before VARCHAR(16) NOT NULL,
    rows_after BIGINT NOT NULL, digest_after VARCHAR(16) NOT NULL,
    turns BIGINT NOT NULL, trial TEXT, ledger_id VARCHAR(32),
    PRIMARY KEY (pipeline, sink)
)"""
CREATE_BATCH_TABLE = """CREATE TABLE penstock_dbapi_batch (
    pipeline VARCHAR(100) NOT NULL, sink VARCHAR(100) NOT NULL, at_position BIGINT NOT NULL,
    generation BIGINT NOT NULL, query_id VARCHAR(100) NOT NULL, batch_id BIGINT NOT NULL, offsets TEXT NOT NULL,
    row_count BIGINT NOT NULL, digest VARCHAR(16) NOT NULL,
    PRIMARY KEY (pipeline, sink, at_position)
)"""

_OWN = "WHERE pipeline = :pipeline AND sink = :sink"
ADD_LEDGER_ID = "ALTER TABLE penstock_dbapi_marker ADD ledger_id VARCHAR(32)"
HAS_LEDGER_ID = Sql(("SELECT ledger_id FROM penstock_dbapi_marker WHERE 1 = 0",))
"""Fails where an older Penstock created the table."""
_SELECT_MARKER = (
    "SELECT format_version, table_name, way, at_position, generation, query_id, batch_id, offsets, row_schema, "
    "rows_decided, digest_decided, rows_before, digest_before, rows_after, digest_after"
)
_READ_MARKER = statement(f"{_SELECT_MARKER}, ledger_id FROM penstock_dbapi_marker {_OWN}")
_READ_WITHOUT_LEDGER_ID = statement(f"{_SELECT_MARKER}, NULL FROM penstock_dbapi_marker {_OWN}")
LOCK_MARKER = statement(f"UPDATE penstock_dbapi_marker SET turns = turns + 1 {_OWN}")
INSERT_MARKER = statement(
    "INSERT INTO penstock_dbapi_marker (pipeline, sink, table_name, way, format_version, at_position, generation, query_id, "
    "batch_id, offsets, row_schema, rows_decided, digest_decided, rows_before, digest_before, rows_after, digest_after, turns, "
    "ledger_id) "
    "VALUES (:pipeline, :sink, :table_name, :write, :format_version, :position, :generation, :query_id, :batch_id, :offsets, "
    ":schema, :rows_decided, :digest_decided, :rows_before, :digest_before, :rows_after, :digest_after, 0, :ledger_id)"
)
_UPDATE_MARKER = statement(
    "UPDATE penstock_dbapi_marker SET table_name = :table_name, way = :write, format_version = :format_version, "
    "at_position = :position, generation = :generation, query_id = :query_id, batch_id = :batch_id, offsets = :offsets, "
    "row_schema = :schema, rows_decided = :rows_decided, digest_decided = :digest_decided, rows_before = :rows_before, "
    f"digest_before = :digest_before, rows_after = :rows_after, digest_after = :digest_after, ledger_id = :ledger_id {_OWN}"
)
READ_TRIAL = statement(f"SELECT trial FROM penstock_dbapi_marker {_OWN}")
WRITE_TRIAL = statement(f"UPDATE penstock_dbapi_marker SET trial = :trial {_OWN}")
WRITE_BATCH = statement(
    "INSERT INTO penstock_dbapi_batch (pipeline, sink, at_position, generation, query_id, batch_id, offsets, row_count, digest) "
    "VALUES (:pipeline, :sink, :position, :generation, :query_id, :batch_id, :offsets, :rows, :digest)"
)
READ_BATCH = statement(
    f"SELECT query_id, batch_id, offsets, row_count, digest FROM penstock_dbapi_batch {_OWN} AND at_position = :position"
)
DELETE_BATCH = statement(f"DELETE FROM penstock_dbapi_batch {_OWN} AND at_position = :position")
DELETE_MARKER = statement(f"DELETE FROM penstock_dbapi_marker {_OWN}")

MARKER_STATEMENTS = MarkerStatements(
    read_marker=_READ_MARKER,
    read_without_ledger_id=_READ_WITHOUT_LEDGER_ID,
    lock_marker=_READ_MARKER,
    write_marker=_UPDATE_MARKER,
    owners=statement("SELECT pipeline, sink, table_name FROM penstock_dbapi_marker ORDER BY pipeline, sink"),
    newest_batch=statement(f"SELECT max(at_position) FROM penstock_dbapi_batch {_OWN}"),
    read_batch=READ_BATCH,
    write_batch=WRITE_BATCH,
    forget_batches=statement(f"DELETE FROM penstock_dbapi_batch {_OWN} AND at_position <= :position"),
)


def is_there(name: str) -> Sql:
    """Return a query that fails unless a table of that name, already quoted, exists."""
    return Sql((f"SELECT 1 FROM {name} WHERE 1 = 0",))


@dataclass(frozen=True, slots=True)
class TableStatements:
    """The statements about the user's table, whose rows have `columns`; `quotes` begin and end a name.

    `inserts`: the words with which an INSERT begins, as `inserts_of` found them.
    """

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    quotes: tuple[str, str]
    inserts: str = INSERT

    @property
    def name(self) -> str:
        """The quoted name of the table; `schema.table` is quoted part by part."""
        return ".".join(quoted(part, self.quotes) for part in self.table.split("."))

    @property
    def native_marker(self) -> str:
        """The marker table of Penstock's native sink for this database, in the schema of the user's table."""
        return ".".join([*(quoted(part, self.quotes) for part in self.table.split(".")[:-1]), NATIVE_MARKER_TABLE])

    @property
    def native_owners(self) -> Sql:
        """Read who fills which table of that schema by the native sink. The schema is left empty."""
        return Sql((f"SELECT pipeline, sink, table_name, '' FROM {self.native_marker} ORDER BY pipeline, sink",))

    def create(self, declared: Sequence[str]) -> Sql:
        """Create the table with the types `declared`. The key becomes the primary key."""
        columns = [
            f"{quoted(name, self.quotes)} {kind}{' NOT NULL' if name in self.key else ''}"
            for name, kind in zip(self.columns, declared, strict=True)
        ]
        key = [f"PRIMARY KEY ({self._list(self.key)})"] if self.key else []
        return Sql((f"CREATE TABLE {self.name} ({', '.join([*columns, *key])})",))

    @property
    def insert(self) -> Sql:
        """Insert one row, whose values are `c<place of the column>`."""
        values = joined(", ", [Sql((Value(f"c{at}"),)) for at in range(len(self.columns))])
        return Sql((f"{self.inserts} {self.name} ({self._list(self.columns)}) VALUES (", *values.parts, ")"))

    @property
    def clear(self) -> Sql:
        return Sql((f"DELETE FROM {self.name}",))

    @property
    def read(self) -> Sql:
        return Sql((f"SELECT {self._list(self.columns)} FROM {self.name}",))

    @property
    def count(self) -> Sql:
        return Sql((f"SELECT count(*) FROM {self.name}",))

    @property
    def fits(self) -> Sql:
        """Fail unless the table has the columns. Qualified: SQLite takes an unknown quoted name for a text otherwise."""
        columns = ", ".join(f"rows_of.{quoted(name, self.quotes)}" for name in self.columns)
        return Sql((f"SELECT {columns} FROM {self.name} rows_of WHERE 1 = 0",))

    @property
    def rows_at_once(self) -> int:
        """The most rows that `present` can ask for."""
        return min(MOST_ROWS, MOST_VALUES // max(1, len(self.key)))

    def present(self, rows: int) -> Sql:
        """Read the indexes, from 0, of those rows whose key is in the table; values are `r<row>k<place in the key>`."""
        return joined(" UNION ALL ", [self._has(row) for row in range(rows)])

    def _has(self, row: int) -> Sql:
        equal = [Sql((f"{quoted(name, self.quotes)} = ", Value(f"r{row}k{at}"))) for at, name in enumerate(self.key)]
        return Sql((f"SELECT {row} FROM {self.name} WHERE ", *joined(" AND ", equal).parts))

    def _list(self, names: Sequence[str]) -> str:
        return ", ".join(quoted(name, self.quotes) for name in names)


def quoted(name: str, quotes: tuple[str, str]) -> str:
    """Return the name as a quoted SQL identifier."""
    begin, end = quotes
    return f"{begin}{name.replace(end, end * 2) if end else name}{end}"
