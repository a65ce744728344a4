"""The SQL about the user's table, and about the staging table beside it, that several servers have in common.

The staging table numbers its rows; of those with one key, the one with the highest or the lowest number is chosen.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class StagedTableStatements(ABC):
    """The statements about the user's table, whose rows have `columns`; the staging table `stage` has these and `number`."""

    schema: str
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    stage: ClassVar[str]

    @abstractmethod
    def quoted(self, name: str) -> str:
        """Return the name as an SQL identifier."""

    @property
    def name(self) -> str:
        """The table, as it is named in SQL."""
        return f"{self.quoted(self.schema)}.{self.quoted(self.table)}"

    @property
    def number(self) -> str:
        """The staging table's column that numbers its rows, under a name that no other column has."""
        name, taken = "penstock_row", {column.lower() for column in self.columns}
        while name in taken:
            name += "_"
        return name

    def insert(self) -> str:
        """Move all staged rows into the table."""
        return f"INSERT INTO {self.name} ({self._list(self.columns)}) SELECT {self._list(self.columns)} FROM {self.stage}"

    def clear(self) -> str:
        """Delete all rows. TRUNCATE would commit on some servers."""
        return f"DELETE FROM {self.name}"

    @property
    def _number(self) -> str:
        """The column `number`, as it is named in SQL."""
        return self.number

    def _chosen(self, *, last: bool) -> str:
        """Select the number of the last or the first staged row of each key."""
        return f"SELECT {'MAX' if last else 'MIN'}({self._number}) FROM {self.stage} GROUP BY {self._list(self.key)}"

    def _same(self, one: str, other: str) -> str:
        """Return the condition that rows of two tables have the same key."""
        return " AND ".join(f"{one}.{self.quoted(name)} = {other}.{self.quoted(name)}" for name in self.key)

    def _list(self, names: Sequence[str], of: str = "") -> str:
        prefix = f"{of}." if of else ""
        return ", ".join(prefix + self.quoted(name) for name in names)

    def _selected(self, read: Sequence[str], of: str = "") -> str:
        """Return the columns, each in its expression of `read`, in which `{}` is its name."""
        prefix = f"{of}." if of else ""
        return ", ".join(how.format(prefix + self.quoted(name)) for how, name in zip(read, self.columns, strict=True))
