"""All CQL statements of the Cassandra sink. When they run is decided elsewhere."""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.sink.table.marker_store import BATCH_TABLE, MARKER_COLUMNS, MARKER_TABLE
from penstock.sink.table.target import Target
from penstock.sql.table_name import in_double_quotes as quoted

OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE})

CLAIMED = ("format_version", "ledger_id")
"""Columns that say which ledger fills the table."""
STAMPED = ("stamp", "stamped_position", "stamped_digest", "rows_displaced", "digest_displaced")
"""Columns about the newest publication, under way or complete."""
BATCHED = ("query_id", "batch_id", "offsets", "rows", "digest", "generation")
_TYPES = {
    **dict.fromkeys(("position", "generation", "batch_id", "stamp", "stamped_position"), "bigint"),
    **dict.fromkeys(("rows", "rows_decided", "rows_before", "rows_after", "rows_displaced"), "bigint"),
    "format_version": "int",
}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _places(names: Sequence[str]) -> str:
    return ", ".join("?" for _ in names)


def _set(names: Sequence[str]) -> str:
    return ", ".join(f"{quoted(name)} = ?" for name in names)


def _declared(names: Sequence[str]) -> str:
    return ", ".join(f"{quoted(name)} {_TYPES.get(name, 'text')}" for name in names)


_OF = "WHERE pipeline = ? AND sink = ?"
_UNCHANGED = "IF position = ? AND stamp = ?"

CREATE_MARKER = (
    f"CREATE TABLE IF NOT EXISTS {MARKER_TABLE} (pipeline text, sink text, {_declared(MARKER_COLUMNS + STAMPED)}, "
    "published_at timestamp, PRIMARY KEY ((pipeline, sink)))"
)
CREATE_BATCH = (
    f"CREATE TABLE IF NOT EXISTS {BATCH_TABLE} (pipeline text, sink text, position bigint, {_declared(BATCHED)}, "
    "published_at timestamp, PRIMARY KEY ((pipeline, sink), position)) WITH CLUSTERING ORDER BY (position DESC)"
)
ADD_LEDGER_ID = f"ALTER TABLE {MARKER_TABLE} ADD ledger_id text"
READ_MARKER = f"SELECT {_listed(MARKER_COLUMNS + STAMPED)} FROM {MARKER_TABLE} {_OF}"
READ_WITHOUT_LEDGER_ID = f"SELECT {_listed(MARKER_COLUMNS[:-1] + STAMPED)} FROM {MARKER_TABLE} {_OF}"
MAKE_MARKER = (
    f"INSERT INTO {MARKER_TABLE} (pipeline, sink, {_listed(MARKER_COLUMNS + STAMPED)}) "
    f"VALUES (?, ?, {_places(MARKER_COLUMNS + STAMPED)}) IF NOT EXISTS"
)
CHANGE_MARKER = f"UPDATE {MARKER_TABLE} SET {_set(MARKER_COLUMNS)}, published_at = toTimestamp(now()) {_OF} {_UNCHANGED}"
STAMP_MARKER = f"UPDATE {MARKER_TABLE} SET {_set(STAMPED + CLAIMED)} {_OF} {_UNCHANGED}"
OWNERS = f"SELECT pipeline, sink, table_name FROM {MARKER_TABLE}"
NEWEST_BATCH = f"SELECT position FROM {BATCH_TABLE} {_OF} LIMIT 1"
READ_BATCH = f"SELECT {_listed(BATCHED[:5])} FROM {BATCH_TABLE} {_OF} AND position = ?"
WRITE_BATCH = (
    f"INSERT INTO {BATCH_TABLE} (pipeline, sink, position, {_listed(BATCHED)}, published_at) "
    f"VALUES (?, ?, ?, {_places(BATCHED)}, toTimestamp(now())) USING TIMESTAMP ?"
)
FORGET_BATCH = f"DELETE FROM {BATCH_TABLE} USING TIMESTAMP ? {_OF} AND position <= ?"

NOW = "SELECT toUnixTimestamp(now()) FROM system.local"
REPLICATION = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?"
DURABLE = "SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = ?"
TABLE = (
    "SELECT default_time_to_live, gc_grace_seconds, flags FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
)
VIEW = "SELECT view_name FROM system_schema.views WHERE keyspace_name = ? AND view_name = ?"
DROPPED = (
    "SELECT column_name, toUnixTimestamp(dropped_time) FROM system_schema.dropped_columns "
    "WHERE keyspace_name = ? AND table_name = ?"
)
COLUMNS = "SELECT column_name, kind, position, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"


@dataclass(frozen=True, slots=True)
class TableStatements:
    """The CQL for one table; `key` are all columns of its primary key, in their order."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def create(self, declared: Sequence[str], partition: Sequence[str]) -> str:
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in zip(self.columns, declared, strict=True))
        clustering = "".join(f", {quoted(name)}" for name in self.key[len(partition) :])
        return f"CREATE TABLE {quoted(self.table)} ({columns}, PRIMARY KEY (({_listed(partition)}){clustering}))"

    @property
    def insert(self) -> str:
        """Writes one row, at a time stamp that is bound last; the row replaces one with an older time stamp."""
        columns = f"({_listed(self.columns)}) VALUES ({_places(self.columns)})"
        return f"INSERT INTO {quoted(self.table)} {columns} USING TIMESTAMP ?"

    @property
    def delete(self) -> str:
        """Deletes one row, at a time stamp that is bound first: what was written with it or with an older one."""
        key = " AND ".join(f"{quoted(name)} = ?" for name in self.key)
        return f"DELETE FROM {quoted(self.table)} USING TIMESTAMP ? WHERE {key}"

    @property
    def read(self) -> str:
        return f"SELECT {_listed(self.columns)} FROM {quoted(self.table)}"

    def read_keys(self, dated: Sequence[str]) -> str:
        """Return the query for rows and write times of columns `dated`; keys differ in the last column only, bound as a list."""
        alike = "".join(f"{quoted(name)} = ? AND " for name in self.key[:-1])
        written = "".join(f", writetime({quoted(name)})" for name in dated)
        columns = f"{_listed(self.columns)}{written}"
        return f"SELECT {columns} FROM {quoted(self.table)} WHERE {alike}{quoted(self.key[-1])} IN ?"

    @property
    def insert_keyless(self) -> str:
        """Writes a row without a key, which every table refuses."""
        return f"INSERT INTO {quoted(self.table)} ({_listed(self.key)}) VALUES ({', '.join('NULL' for _ in self.key)})"

    @property
    def look(self) -> str:
        return f"{self.read} LIMIT 1"


def statements_of(rows: "pa.Schema", target: Target) -> TableStatements:
    """Return the CQL about the target for `rows`."""
    return TableStatements(target.table, tuple(rows.names), target.key)
