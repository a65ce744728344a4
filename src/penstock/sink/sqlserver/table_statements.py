"""All SQL of the sqlserver sink about the user's table and the temporary staging table beside it.

The staging table numbers its rows; of those with one key, the one with the highest or the lowest number is chosen. Rows of the
user's table that are read before they are written are read `WITH (UPDLOCK, HOLDLOCK)`: until the transaction ends, nobody else
can change these rows or fill the gaps between them.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.sink.sqlserver.names import quoted
from penstock.sink.sqlserver.statements import STAGE

_KEPT = "WITH (UPDLOCK, HOLDLOCK)"
DROP_STAGE = f"DROP TABLE IF EXISTS {STAGE}"
"""A staging table lives as long as the session."""
COUNT_STAGE = f"SELECT COUNT(*) FROM {STAGE}"


@dataclass(frozen=True, slots=True)
class TableStatements:
    """The statements about the user's table, whose rows have `columns`; the staging table has these and `number`."""

    schema: str
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def number(self) -> str:
        """The staging table's column that numbers its rows, under a name that no other column has."""
        name, taken = "penstock_row", {column.lower() for column in self.columns}
        while name in taken:
            name += "_"
        return name

    def create(self, declared: Sequence[str]) -> str:
        """Create the table with the types `declared`. The key becomes the primary key."""
        parts = [
            f"{quoted(name)} {kind} {'NOT NULL' if name in self.key else 'NULL'}"
            for name, kind in zip(self.columns, declared, strict=True)
        ]
        if self.key:
            parts.append(f"PRIMARY KEY NONCLUSTERED ({_list(self.key)})")
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"

    def create_stage(self, declared: Sequence[str]) -> str:
        """Create the staging table, which nobody else sees."""
        parts = [f"{quoted(name)} {kind} NULL" for name, kind in zip(self.columns, declared, strict=True)]
        return f"CREATE TABLE {STAGE} ({quoted(self.number)} bigint NOT NULL, {', '.join(parts)})"

    def hold(self) -> str:
        """Keep others from altering the table until the end of the transaction; they can still write rows."""
        return f"SELECT TOP (1) 1 FROM {self.name} WITH (REPEATABLEREAD)"

    def insert(self) -> str:
        """Move all staged rows into the table."""
        return f"INSERT INTO {self.name} ({_list(self.columns)}) SELECT {_list(self.columns)} FROM {STAGE}"

    def clear(self) -> str:
        return f"DELETE FROM {self.name}"

    def read(self) -> str:
        return f"SELECT {_list(self.columns)} FROM {self.name}"

    # --- by key

    def read_unchosen(self, *, last: bool) -> str:
        """Read the staged rows that are not the last, or the first, of their key."""
        return f"SELECT {_list(self.columns, 's')} FROM {STAGE} AS s WHERE NOT {self._is_chosen(last=last)}"

    def lock_there(self) -> str:
        """Read the rows of the table that have a key of the batch; nobody else can change or add such rows now."""
        return (
            f"SELECT {_list(self.columns, 't')} FROM {self.name} AS t {_KEPT} "
            f"JOIN {STAGE} AS s ON {self._same} WHERE {self._is_chosen(last=True)}"
        )

    def lock_skipped(self) -> str:
        """Read the first staged row of each key in the table; from now on such keys neither come nor go."""
        return f"SELECT {_list(self.columns, 's')} {self._first} AND {self._is_there}"

    def upsert(self) -> str:
        """Move the last staged row of each key; it replaces the other columns of a row with the same key."""
        others = [name for name in self.columns if name not in self.key] or list(self.key)
        changes = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in others)
        chosen = f"SELECT {_list(self.columns, 's')} FROM {STAGE} AS s WHERE {self._is_chosen(last=True)}"
        return (
            f"MERGE INTO {self.name} WITH (HOLDLOCK) AS t USING ({chosen}) AS s ON {self._same} "
            f"WHEN MATCHED THEN UPDATE SET {changes} "
            f"WHEN NOT MATCHED BY TARGET THEN INSERT ({_list(self.columns)}) VALUES ({_list(self.columns, 's')});"
        )

    def insert_if_absent(self) -> str:
        """Move the first staged row of each key that the table lacks."""
        chosen = f"SELECT {_list(self.columns, 's')} {self._first} AND NOT {self._is_there}"
        return f"INSERT INTO {self.name} ({_list(self.columns)}) {chosen}"

    @property
    def _first(self) -> str:
        return f"FROM {STAGE} AS s WHERE {self._is_chosen(last=False)}"

    @property
    def _is_there(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self.name} AS t {_KEPT} WHERE {self._same})"

    def _is_chosen(self, *, last: bool) -> str:
        return f"s.{quoted(self.number)} IN ({self._chosen(last=last)})"

    def _chosen(self, *, last: bool) -> str:
        return f"SELECT {'MAX' if last else 'MIN'}({quoted(self.number)}) FROM {STAGE} GROUP BY {_list(self.key)}"

    @property
    def _same(self) -> str:
        return " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in self.key)


def _list(names: Sequence[str], of: str = "") -> str:
    prefix = f"{of}." if of else ""
    return ", ".join(prefix + quoted(name) for name in names)
