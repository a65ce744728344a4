"""SQL of the mysql sink about the user's table and the temporary tables for staging.

A statement of MySQL may name a temporary table only once. So a second one lists the numbers of the staged rows that count.
STRAIGHT_JOIN keeps the order of the joins: from the few staged rows, by the index of the key, into the user's table.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.sink.mysql.statements import CHOSEN, STAGE
from penstock.sink.table.table_statements import StagedTableStatements
from penstock.sql.mysql.names import quoted

DROP_STAGE = f"DROP TEMPORARY TABLE IF EXISTS {STAGE}"
DROP_CHOSEN = f"DROP TEMPORARY TABLE IF EXISTS {CHOSEN}"
CREATE_CHOSEN = f"CREATE TEMPORARY TABLE {CHOSEN} (penstock_row bigint NOT NULL PRIMARY KEY) ENGINE = InnoDB"


@dataclass(frozen=True, slots=True)
class TableStatements(StagedTableStatements):
    """The statements about the user's table, whose rows have `columns`; the staging table has `number` as well."""

    stage = STAGE

    def quoted(self, name: str) -> str:
        return quoted(name)

    @property
    def name(self) -> str:
        return self.quoted(self.table)

    def create(self, declared: Sequence[str]) -> str:
        """Create the table with column types `declared`. The key becomes the primary key."""
        parts = [
            f"{self.quoted(name)} {kind} {'NOT NULL' if name in self.key else 'NULL'}"
            for name, kind in zip(self.columns, declared, strict=True)
        ]
        if self.key:
            parts.append(f"PRIMARY KEY ({self._list(self.key)})")
        return f"CREATE TABLE {self.name} ({', '.join(parts)}) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4"

    def hold(self) -> str:
        """Lock the table's definition until the transaction ends; other sessions can go on writing rows."""
        return f"SELECT 1 FROM {self.name} LIMIT 0"

    def create_stage(self, declared: Sequence[str], collation: str) -> str:
        """Create the session's own staging table, which ends with the connection."""
        parts = [f"{self.quoted(name)} {kind} NULL" for name, kind in zip(self.columns, declared, strict=True)]
        return (
            f"CREATE TEMPORARY TABLE {STAGE} ({self.number} bigint NOT NULL PRIMARY KEY, {', '.join(parts)}) "
            f"ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {collation}"
        )

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

    def read(self, read: Sequence[str]) -> str:
        return f"SELECT {self._selected(read)} FROM {self.name}"

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
        """Choose the last or the first staged row of each key."""
        return f"INSERT INTO {CHOSEN} {self._chosen(last=last)}"

    def read_unchosen(self, read: Sequence[str]) -> str:
        """Select the staged rows that are not chosen."""
        return (
            f"SELECT {self._selected(read, 's')} FROM {STAGE} s LEFT JOIN {CHOSEN} c ON c.penstock_row = s.{self.number} "
            "WHERE c.penstock_row IS NULL"
        )

    def lock_replaced(self, read: Sequence[str]) -> str:
        """Select and lock the table's rows that have the key of a chosen row."""
        return f"SELECT {self._selected(read, 't')} FROM {self._chosen_there} FOR UPDATE"

    def read_skipped(self, read: Sequence[str]) -> str:
        """Select the chosen rows whose key the table has."""
        return f"SELECT {self._selected(read, 's')} FROM {self._chosen_there}"

    def replace(self) -> str:
        """Update the other columns of the table's rows that have a chosen key; if there are none, only count these rows."""
        others = [self.quoted(name) for name in self.columns if name not in self.key] or [self.quoted(self.key[0])]
        changes = ", ".join(f"t.{name} = s.{name}" for name in others)
        return f"UPDATE {self._chosen_there} SET {changes}"

    def forget_there(self) -> str:
        """Remove the rows whose key the table has from the choice."""
        return f"DELETE c FROM {self._chosen_there}"

    def insert_chosen(self) -> str:
        """Insert the chosen rows."""
        columns = self._selected(["{}"] * len(self.columns), "s")
        return f"INSERT INTO {self.name} ({self._list(self.columns)}) SELECT {columns} FROM {self._staged_chosen}"

    @property
    def _staged_chosen(self) -> str:
        return f"{CHOSEN} c STRAIGHT_JOIN {STAGE} s ON s.{self.number} = c.penstock_row"

    @property
    def _chosen_there(self) -> str:
        return f"{self._staged_chosen} STRAIGHT_JOIN {self.name} t ON {self._same('t', 's')}"
