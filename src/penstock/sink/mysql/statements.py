"""All SQL of the mysql sink. When a statement runs is decided elsewhere.

The database of the user's table has two tables of Penstock's own: `penstock_marker` with one row per pipeline and sink, and
`penstock_batch` with one row for each of the last batches. The view `penstock_offsets` shows the marker's offsets one by one.
Users may read all three with their own SQL. Digests are 16 hexadecimal digits, because they do not fit a bigint. Some column
names are reserved words, hence the backticks.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.sink.table.marker_store import (
    BATCH_TABLE,
    DBAPI_MARKER_TABLE,
    MARKER_TABLE,
    OWNERS_BY_DBAPI,
    MarkerStatements,
)
from penstock.sink.table.script import Syntax
from penstock.sink.table.table_statements import StagedTableStatements
from penstock.sql.mysql.statements import OWN_OPTIONS, quoted

OFFSETS_VIEW = "penstock_offsets"
_RESERVED = frozenset({"write", "schema", "rows"})
STAGE, CHOSEN = "penstock_stage", "penstock_chosen"
"""Temporary tables. They hide a user's table of the same name."""
OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, "penstock_ledger", "penstock_history", OFFSETS_VIEW, STAGE, CHOSEN})

TABLE_COLUMNS = """
SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE, COLUMN_DEFAULT, EXTRA
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""

WARNINGS = "SHOW WARNINGS"

DROP_STAGE = f"DROP TEMPORARY TABLE IF EXISTS {STAGE}"
DROP_CHOSEN = f"DROP TEMPORARY TABLE IF EXISTS {CHOSEN}"
CREATE_CHOSEN = f"CREATE TEMPORARY TABLE {CHOSEN} (penstock_row bigint NOT NULL PRIMARY KEY) ENGINE = InnoDB"

CREATE_OFFSETS = """
CREATE SQL SECURITY INVOKER VIEW penstock_offsets AS
SELECT marker.table_name, marker.pipeline, marker.sink, source.source,
       JSON_EXTRACT(marker.offsets, CONCAT('$[', source.number - 1, '].end')) AS end_offset,
       marker.batch_id, marker.position, marker.published_at
FROM penstock_marker AS marker
JOIN JSON_TABLE(marker.offsets, '$[*]' COLUMNS (number FOR ORDINALITY, source varchar(255) PATH '$.source')) AS source
"""

_OWNERS = """
SELECT pipeline, sink FROM penstock_marker
WHERE table_name = %(table)s OR (@@lower_case_table_names <> 0 AND LOWER(table_name) = LOWER(%(table)s))
ORDER BY pipeline, sink
"""

OWNERS_OF_DBAPI = OWNERS_BY_DBAPI.format(schema="DATABASE()", marker=DBAPI_MARKER_TABLE)


@dataclass(frozen=True, slots=True)
class OwnStatements(MarkerStatements):
    """The statements about Penstock's own tables in the database of the URL.

    A marker's row is updated in place: a new row would be another lock.
    """

    options = f" {OWN_OPTIONS}"
    text = "longtext"
    types: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("pipeline", "sink", "table_name", "query_id"), "varchar(255)"),
        "write": "varchar(32)",
        "format_version": "int",
        "digest": "char(16)",
        "ledger_id": "char(32)",
        "published_at": "datetime(6)",
    }
    now = "UTC_TIMESTAMP(6)"
    for_update = " FOR UPDATE"

    def named(self, table: str) -> str:
        return table

    def quoted(self, name: str) -> str:
        return quoted(name) if name in _RESERVED else name

    @property
    def owners(self) -> str:
        return _OWNERS


@dataclass(frozen=True, slots=True)
class TableStatements(StagedTableStatements):
    """The statements about the user's table and the temporary tables for staging.

    A statement of MySQL may name a temporary table only once. So a second one lists the numbers of the staged rows that count.
    STRAIGHT_JOIN keeps the order of the joins: from the few staged rows, by the index of the key, into the user's table.
    """

    stage = STAGE
    options = " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4"
    joined: ClassVar[str] = "STRAIGHT_JOIN"
    locking: ClassVar[str] = " FOR UPDATE"

    def quoted(self, name: str) -> str:
        return quoted(name)

    @property
    def name(self) -> str:
        return self.quoted(self.table)

    def create_stage(self, declared: Sequence[str], collation: str) -> str:
        """Create the session's own staging table, which ends with the connection."""
        parts = [f"{self.number} bigint NOT NULL PRIMARY KEY", *self._staged_defined(declared)]
        return f"CREATE TEMPORARY TABLE {STAGE} ({', '.join(parts)}){self.options} COLLATE {collation}"

    def load(self, options: str) -> str:
        """Load the file `{file}` into the staging table."""
        return f"LOAD DATA LOCAL INFILE {{file}} INTO TABLE {STAGE} {options}"

    def load_in(self, options: str) -> str:
        """Load the file `{file}` into the table itself."""
        name, columns = (text.replace("{", "{{").replace("}", "}}") for text in (self.name, self._list(self.columns)))
        return f"LOAD DATA LOCAL INFILE {{file}} INTO TABLE {name} {options} ({columns})"

    def insert_values(self) -> bytes:
        """Insert into the staging table; the rows are to be appended to the statement."""
        return f"INSERT INTO {STAGE} VALUES ".encode()

    def tries(self) -> dict[str, str]:
        """Return a harmless statement per privilege: it needs the privilege, but explains a change or finds no row."""
        columns = self._list(self.columns)
        first = self.quoted(self.columns[0])
        return {
            "SELECT": f"SELECT {columns} FROM {self.name} LIMIT 0",
            "INSERT": f"EXPLAIN INSERT INTO {self.name} ({columns}) SELECT {columns} FROM {self.name} WHERE FALSE",
            "UPDATE": f"EXPLAIN UPDATE {self.name} SET {first} = {first} WHERE FALSE",
            "DELETE": f"EXPLAIN DELETE FROM {self.name} WHERE FALSE",
        }

    # --- writing by key

    def choose(self, *, last: bool) -> str:
        """Choose the last or the first staged row of each key, or the newest one by `sequence_by`."""
        chosen = self._chosen(last=last) if self.sequence_by is None else self._newest("= 1")
        return f"INSERT INTO {CHOSEN} {chosen}"

    def read_outdated(self) -> str:
        """Select the chosen rows that are older than the table's row with their key, and lock that."""
        return f"SELECT {self._selected('s')} FROM {self._chosen_there} WHERE {self._is_older} FOR UPDATE"

    def delete_outdated(self) -> str:
        """Remove the rows that `read_outdated` selects from the choice."""
        return f"DELETE c FROM {self._chosen_there} WHERE {self._is_older}"

    def read_unchosen(self) -> str:
        """Select the staged rows that are not chosen."""
        return (
            f"SELECT {self._selected('s')} FROM {STAGE} s LEFT JOIN {CHOSEN} c ON c.penstock_row = s.{self.number} "
            "WHERE c.penstock_row IS NULL"
        )

    def lock_replaced(self) -> str:
        """Select and lock the table's rows that have the key of a chosen row."""
        return f"SELECT {self._selected('t')} FROM {self._chosen_there} FOR UPDATE"

    def read_skipped(self) -> str:
        """Select the chosen rows whose key the table has."""
        return f"SELECT {self._selected('s')} FROM {self._chosen_there}"

    def replace(self) -> str:
        """Update the other columns of the table's rows that have a chosen key; only count them if the key has all columns."""
        changes = ", ".join(f"t.{self.quoted(name)} = s.{self.quoted(name)}" for name in self.others or self.key[:1])
        return f"UPDATE {self._chosen_there} SET {changes}"

    def delete(self) -> str:
        """Delete the table's rows for whose key the chosen row deletes."""
        return f"DELETE t FROM {self._chosen_there} WHERE {self._deletes('s')}"

    def read_deleting(self) -> str:
        """Select the chosen rows that delete."""
        return f"SELECT {self._selected('s')} FROM {self._staged_chosen} WHERE {self._deletes('s')}"

    def forget_deleting(self) -> str:
        """Remove the rows that delete from the choice."""
        return f"DELETE c FROM {self._staged_chosen} WHERE {self._deletes('s')}"

    def forget_there(self) -> str:
        """Remove the rows whose key the table has from the choice."""
        return f"DELETE c FROM {self._chosen_there}"

    def insert_chosen(self) -> str:
        """Insert the chosen rows."""
        columns = self._list(self.columns, "s")
        return f"INSERT INTO {self.name} ({self._list(self.columns)}) SELECT {columns} FROM {self._staged_chosen}"

    # --- writing by key where every key of the batch is there once

    def lock_there(self) -> str:
        """Select and lock the table's rows that have the key of a staged row."""
        return f"SELECT {self._selected('t')} FROM {STAGE} s STRAIGHT_JOIN {self.name} t ON {self._same('t', 's')} FOR UPDATE"

    def insert_absent(self) -> str:
        """Insert the staged rows whose key the table lacks."""
        columns, absent = self._list(self.columns, "s"), f"t.{self.quoted(self.key[0])} IS NULL"
        there = f"LEFT JOIN {self.name} t ON {self._same('t', 's')}"
        return f"INSERT INTO {self.name} ({self._list(self.columns)}) SELECT {columns} FROM {STAGE} s {there} WHERE {absent}"

    def insert_over(self) -> str:
        """Update the other columns of the table's rows with the key of a staged row; each staged row has such a row by now."""
        columns, changed = self._list(self.columns, "s"), self.others or self.key[:1]
        changes = ", ".join(f"{self.name}.{self.quoted(name)} = s.{self.quoted(name)}" for name in changed)
        insert = f"INSERT INTO {self.name} ({self._list(self.columns)}) SELECT {columns} FROM {STAGE} s"
        return f"{insert} ON DUPLICATE KEY UPDATE {changes}"

    @property
    def _staged_chosen(self) -> str:
        return f"{CHOSEN} c STRAIGHT_JOIN {STAGE} s ON s.{self.number} = c.penstock_row"

    @property
    def _chosen_there(self) -> str:
        return f"{self._staged_chosen} STRAIGHT_JOIN {self.name} t ON {self._same('t', 's')}"


# --- the user's own SQL

_HIDDEN = r"""
--(?=\s|\Z)[^\n]*
| \#[^\n]*
| /\*(?!M?!).*?\*/
| '(?:[^'\\]|''|\\.)*'
| "(?:[^"\\]|""|\\.)*"
| `(?:[^`]|``)*`
"""

SYNTAX = Syntax(
    database="MySQL",
    hidden=re.compile(_HIDDEN, re.VERBOSE | re.DOTALL),
    broken=re.compile(r"/\*M?!?|'|\"|`"),
    starts=frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"}),
)
"""MySQL's and MariaDB's lexical rules, from MySQL's manual, "Comments" and "String Literals".

They hold for the `sql_mode` that Penstock sets: a backslash escapes, and double quotes enclose a string.
"""
