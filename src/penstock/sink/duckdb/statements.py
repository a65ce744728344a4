"""All SQL of the duckdb sink; its callers decide when it runs.

Two tables of Penstock lie beside the user's: `penstock_marker` with one row per pipeline and sink, and `penstock_batch` with
one row for each of the last batches. The view `penstock_offsets` shows the marker's offsets one by one. All are meant to be
read with the user's own SQL. Every user-given name goes through `quoted`. DuckDB's names are case-insensitive.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.sink.table.marker_store import BATCH_TABLE, MARKER_TABLE, MarkerStatements
from penstock.sink.table.table_statements import StagedTableStatements
from penstock.sql.table_name import in_double_quotes as quoted

OFFSETS_VIEW = "penstock_offsets"
STAGE, INCOMING = "penstock_stage", "penstock_incoming"
"""Temporary objects, which would hide a table of the same name."""
OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, OFFSETS_VIEW, STAGE, INCOMING})

BEGIN = "BEGIN TRANSACTION"
IN_UTC = "SET TimeZone = 'UTC'"

TABLE_KIND = """
SELECT 'table' FROM duckdb_tables()
WHERE database_name = current_database() AND schema_name = 'main' AND lower(table_name) = lower($name)
UNION ALL
SELECT 'view' FROM duckdb_views()
WHERE database_name = current_database() AND schema_name = 'main' AND lower(view_name) = lower($name)
"""
TABLE_COLUMNS = """
SELECT column_name, data_type, NOT is_nullable, column_default IS NOT NULL FROM duckdb_columns()
WHERE database_name = current_database() AND schema_name = 'main' AND lower(table_name) = lower($name) ORDER BY column_index
"""

_CREATE_OFFSETS_VIEW = """
CREATE VIEW IF NOT EXISTS penstock_offsets AS
SELECT table_name, pipeline, sink, source ->> 'source' AS source, source -> 'end' AS end_offset, batch_id, position, published_at
FROM (SELECT * EXCLUDE (offsets), unnest(offsets::JSON[]) AS source FROM penstock_marker)
"""


@dataclass(frozen=True, slots=True)
class OwnStatements(MarkerStatements):
    """The statements about Penstock's own tables."""

    text, number = "VARCHAR", "BIGINT"
    types: ClassVar[Mapping[str, str]] = {"format_version": "INTEGER", "published_at": "TIMESTAMPTZ"}
    upserts = True

    def named(self, table: str) -> str:
        return table

    def bound(self, name: str) -> str:
        return f"${name}"

    @property
    def creates(self) -> Mapping[str, str]:
        return {**super(OwnStatements, self).creates, OFFSETS_VIEW: _CREATE_OFFSETS_VIEW}

    @property
    def owners(self) -> str:
        return "SELECT pipeline, sink FROM penstock_marker WHERE lower(table_name) = lower($table) ORDER BY pipeline, sink"


DROP_STAGE = f"DROP TABLE {STAGE}"


@dataclass(frozen=True, slots=True)
class TableStatements(StagedTableStatements):
    """The statements about the user's table. DuckDB's names ignore case."""

    stage = STAGE
    null = ""

    def quoted(self, name: str) -> str:
        return quoted(name)

    @property
    def name(self) -> str:
        """The table without its schema, which would be taken for a database if the file is named like it."""
        return quoted(self.table)

    def _in_key(self, name: str) -> bool:
        return name.lower() in map(str.lower, self.key)

    @property
    def fill_stage(self) -> str:
        """Fill the staging table, which nobody else sees and which ends with the transaction."""
        return f"CREATE TEMPORARY TABLE {STAGE} AS SELECT * FROM {INCOMING}"

    def tries(self, name: str) -> str:
        """Cannot be prepared if the column takes no values."""
        return f"INSERT INTO {self.name} ({quoted(name)}) SELECT NULL"

    @property
    def tells_apart(self) -> str:
        """Cannot be prepared if the table does not keep rows unique by the key."""
        rows = f"INSERT INTO {self.name} ({self._names}) SELECT {self._names} FROM {self.name} WHERE false"
        return f"{rows} ON CONFLICT ({self._list(self.key)}) DO NOTHING"

    @property
    def upsert(self) -> str:
        """Move the last staged row of each key, unless it deletes; it replaces the other columns of a row with the same key."""
        changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in self.others)
        action = f"UPDATE SET {changes}" if changes else "NOTHING"
        chosen = f"{self._is_chosen(last=True)}{self._stays(STAGE)}"
        return f"{self.insert()} WHERE {chosen} ON CONFLICT ({self._list(self.key)}) DO {action}"

    @property
    def delete(self) -> str:
        """Delete the rows of the table for whose key the last staged row deletes."""
        keys = f"SELECT {self._list(self.key)} FROM {STAGE} WHERE {self._is_chosen(last=True)} AND {self._deletes(STAGE)}"
        return f"DELETE FROM {self.name} WHERE ({self._list(self.key)}) IN ({keys})"

    @property
    def insert_if_absent(self) -> str:
        """Move the first staged row of each key that the table lacks."""
        return f"{self.insert()} WHERE {self._is_chosen(last=False)} ON CONFLICT ({self._list(self.key)}) DO NOTHING"

    def folds(self, name: str) -> str:
        """Read whether the column's collation takes texts for equal that differ in case, accents or composition."""
        alike = (("a", "A"), ("\u00e1", "a"), ("\u00e9", "e\u0301"))
        tried = " OR ".join(f"coalesce(max({quoted(name)}), '{one}') = '{other}'" for one, other in alike)
        return f"SELECT {tried} FROM {self.name} WHERE false"

    @property
    def read_replaced(self) -> str:
        """Read the rows of the table that have a key of the batch: those that will be replaced or deleted."""
        return f"{self.read()} SEMI JOIN {STAGE} USING ({self._list(self.key)})"

    @property
    def read_superseded(self) -> str:
        """Read the staged rows that do not get into the table: those that are not the last of their key, or that delete."""
        return f"SELECT {self._names} FROM {STAGE} WHERE NOT {self._is_chosen(last=True)}{self._or_deletes(STAGE)}"

    @property
    def read_skipped(self) -> str:
        """Read the staged rows that are not the first of their key, and the first ones whose key the table has."""
        first, staged = self._is_chosen(last=False), f"SELECT {self._names} FROM {STAGE}"
        there = f"({staged} WHERE {first}) SEMI JOIN {self.name} USING ({self._list(self.key)})"
        return f"{staged} WHERE NOT {first} UNION ALL SELECT {self._names} FROM {there}"

    @property
    def _names(self) -> str:
        return self._list(self.columns)

    def _is_chosen(self, *, last: bool) -> str:
        return f"{self.number} IN ({self._chosen(last=last)})"
