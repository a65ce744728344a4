"""All SQL of the mysql sink about the user's table and the temporary tables beside it.

MySQL lets no statement name a temporary table twice: which staged rows count stands in a second one. In both, a row's number
tells it. STRAIGHT_JOIN keeps the order of the joins: from the few staged rows by the index of the key into the user's table.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.sink.mysql.statements import CHOSEN, STAGE
from penstock.sql.mysql.names import quoted

DROP_STAGE = f"DROP TEMPORARY TABLE IF EXISTS {STAGE}"
DROP_CHOSEN = f"DROP TEMPORARY TABLE IF EXISTS {CHOSEN}"
CREATE_CHOSEN = f"CREATE TEMPORARY TABLE {CHOSEN} (penstock_row bigint NOT NULL PRIMARY KEY) ENGINE = InnoDB"


@dataclass(frozen=True, slots=True)
class TableStatements:
    """The statements about the user's table, whose rows have `columns`; the staging table has them too, and `number`."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The user's table."""
        return quoted(self.table)

    @property
    def number(self) -> str:
        """The staging table's column that counts its rows: a name that no column has."""
        name, taken = "penstock_row", {column.lower() for column in self.columns}
        while name in taken:
            name += "_"
        return name

    def create(self, declared: Sequence[str]) -> str:
        """Create the table; `declared` are the columns' types. The key becomes the primary key."""
        parts = [
            f"{quoted(name)} {kind} {'NOT NULL' if name in self.key else 'NULL'}"
            for name, kind in zip(self.columns, declared, strict=True)
        ]
        if self.key:
            parts.append(f"PRIMARY KEY ({_list(self.key)})")
        return f"CREATE TABLE {self.name} ({', '.join(parts)}) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4"

    def hold(self) -> str:
        """Keep others from changing the table's definition until the end of the transaction; they may go on writing rows."""
        return f"SELECT 1 FROM {self.name} LIMIT 0"

    def create_stage(self, declared: Sequence[str], collation: str) -> str:
        """The staging table; nobody else sees it and it ends with the connection."""
        parts = [f"{quoted(name)} {kind} NULL" for name, kind in zip(self.columns, declared, strict=True)]
        return (
            f"CREATE TEMPORARY TABLE {STAGE} ({self.number} bigint NOT NULL PRIMARY KEY, {', '.join(parts)}) "
            f"ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {collation}"
        )

    def load(self, options: str) -> str:
        """Fill the staging table from the file `{file}`."""
        return f"LOAD DATA LOCAL INFILE {{file}} INTO TABLE {STAGE} {options}"

    def load_in(self, options: str) -> str:
        """Fill the table itself from the file `{file}`."""
        name, columns = (text.replace("{", "{{").replace("}", "}}") for text in (self.name, _list(self.columns)))
        return f"LOAD DATA LOCAL INFILE {{file}} INTO TABLE {name} {options} ({columns})"

    def insert_values(self) -> bytes:
        """Fill the staging table with the rows that follow."""
        return f"INSERT INTO {STAGE} VALUES ".encode()

    def insert(self) -> str:
        """Move the staged rows."""
        return f"INSERT INTO {self.name} ({_list(self.columns)}) SELECT {_list(self.columns)} FROM {STAGE}"

    def clear(self) -> str:
        """Delete all rows."""
        return f"DELETE FROM {self.name}"

    def read(self, read: Sequence[str]) -> str:
        """All rows."""
        return f"SELECT {self._selected(read)} FROM {self.name}"

    def tries(self) -> dict[str, str]:
        """Statements by the right that they need, which change nothing: they explain, or find no row."""
        columns = _list(self.columns)
        first = quoted(self.columns[0])
        return {
            "SELECT": f"SELECT {columns} FROM {self.name} LIMIT 0",
            "INSERT": f"EXPLAIN INSERT INTO {self.name} ({columns}) SELECT {columns} FROM {self.name} WHERE FALSE",
            "UPDATE": f"EXPLAIN UPDATE {self.name} SET {first} = {first} WHERE FALSE",
            "DELETE": f"EXPLAIN DELETE FROM {self.name} WHERE FALSE",
        }

    # --- by key

    def choose(self, *, last: bool) -> str:
        """Note the last or the first staged row of each key."""
        which = "MAX" if last else "MIN"
        return f"INSERT INTO {CHOSEN} SELECT {which}({self.number}) FROM {STAGE} GROUP BY {_list(self.key)}"

    def read_unchosen(self, read: Sequence[str]) -> str:
        """The staged rows that are not chosen."""
        return (
            f"SELECT {self._selected(read, 's.')} FROM {STAGE} s LEFT JOIN {CHOSEN} c ON c.penstock_row = s.{self.number} "
            "WHERE c.penstock_row IS NULL"
        )

    def lock_replaced(self, read: Sequence[str]) -> str:
        """The rows of the table whose key a chosen row has, kept from changing."""
        return f"SELECT {self._selected(read, 't.')} FROM {self._chosen_there} FOR UPDATE"

    def read_skipped(self, read: Sequence[str]) -> str:
        """The chosen rows whose key is in the table."""
        return f"SELECT {self._selected(read, 's.')} FROM {self._chosen_there}"

    def replace(self) -> str:
        """Set the other columns of the rows whose key is there; without any other, say only how many there are."""
        others = [quoted(name) for name in self.columns if name not in self.key] or [quoted(self.key[0])]
        changes = ", ".join(f"t.{name} = s.{name}" for name in others)
        return f"UPDATE {self._chosen_there} SET {changes}"

    def forget_there(self) -> str:
        """Choose no more what is there."""
        return f"DELETE c FROM {self._chosen_there}"

    def insert_chosen(self) -> str:
        """Move the chosen rows."""
        columns = self._selected(["{}"] * len(self.columns), "s.")
        return f"INSERT INTO {self.name} ({_list(self.columns)}) SELECT {columns} FROM {self._chosen}"

    @property
    def _chosen(self) -> str:
        return f"{CHOSEN} c STRAIGHT_JOIN {STAGE} s ON s.{self.number} = c.penstock_row"

    @property
    def _chosen_there(self) -> str:
        same = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in self.key)
        return f"{self._chosen} STRAIGHT_JOIN {self.name} t ON {same}"

    def _selected(self, read: Sequence[str], prefix: str = "") -> str:
        return ", ".join(how.format(prefix + quoted(name)) for how, name in zip(read, self.columns, strict=True))


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
