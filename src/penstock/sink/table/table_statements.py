"""The SQL about the user's table, and about the staging table beside it, that several servers have in common.

The staging table numbers its rows; of those with one key, the one with the highest or the lowest number is chosen.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.core.deletes import deletes_column
from penstock.sink.table.history import VALID_FROM, VALID_TO


@dataclass(frozen=True, slots=True)
class TableStatements(ABC):
    """The statements about the user's table, whose rows have `columns`.

    `read_as`: the expression that selects each column, in which `{}` is its name; empty where the names alone do. `primary_key`,
    `null` and `options`: what a CREATE TABLE says of the key and of other columns, and what it ends with.
    """

    schema: str
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    read_as: tuple[str, ...] = ()
    primary_key: ClassVar[str | None] = "PRIMARY KEY"
    null: ClassVar[str] = " NULL"
    options: ClassVar[str] = ""

    @abstractmethod
    def quoted(self, name: str) -> str:
        """Return the name as an SQL identifier."""

    @property
    def name(self) -> str:
        """The table, as it is named in SQL."""
        return f"{self.quoted(self.schema)}.{self.quoted(self.table)}"

    @property
    def others(self) -> Sequence[str]:
        """The columns outside the key."""
        return [name for name in self.columns if not self._in_key(name)]

    def create(self, declared: Sequence[str]) -> str:
        """Create the table with column types `declared`."""
        names = zip(self.columns, declared, strict=True)
        parts = [f"{self.quoted(name)} {kind}{' NOT NULL' if self._in_key(name) else self.null}" for name, kind in names]
        if self.key and self.primary_key:
            parts.append(f"{self.primary_key} ({self._list(self.key)})")
        return f"CREATE TABLE {self.name} ({', '.join(parts)}){self.options}"

    def read(self) -> str:
        return f"SELECT {self._selected()} FROM {self.name}"

    def clear(self) -> str:
        """Delete all rows. TRUNCATE would commit on some servers."""
        return f"DELETE FROM {self.name}"

    def count_batches(self, column: str, *, after: int, before: int) -> str:
        """Count the rows whose `column` is above `after` and below `before`."""
        return f"SELECT COUNT(*) FROM {self.name} WHERE {self._is_between(column, after, before)}"

    def delete_batches(self, column: str, *, after: int, before: int) -> str:
        """Delete these rows."""
        return f"DELETE FROM {self.name} WHERE {self._is_between(column, after, before)}"

    def _is_between(self, column: str, after: int, before: int) -> str:
        return f"{self.quoted(column)} > {after:d} AND {self.quoted(column)} < {before:d}"

    def _in_key(self, name: str) -> bool:
        return name in self.key

    def _list(self, names: Sequence[str], of: str = "") -> str:
        prefix = f"{of}." if of else ""
        return ", ".join(prefix + self.quoted(name) for name in names)

    def _selected(self, of: str = "") -> str:
        """Return the columns as they are read."""
        prefix = f"{of}." if of else ""
        read_as = self.read_as or ["{}"] * len(self.columns)
        return ", ".join(how.format(prefix + self.quoted(name)) for how, name in zip(read_as, self.columns, strict=True))


@dataclass(frozen=True, slots=True)
class StagedTableStatements(TableStatements):
    """The statements about the user's table and the staging table `stage`, which has its columns and `number`.

    `deletes`: the staging table has one more column, last: whether the row deletes. `deleting` and `staying` are the conditions.
    `sequence_by`: the column whose greater value says that a row is newer; `sequence_as` is how its values are compared, a format
    of the column's name. `kept`: what a FROM adds to the table's name, so that nobody else can change what was read of it.
    `joined` and `locking`: how `read_compared` joins both tables, and what keeps others from changing the rows that it reads.
    """

    stage: ClassVar[str]
    deletes: bool = False
    sequence_by: str | None = None
    sequence_as: str = "{}"
    kept: ClassVar[str] = ""
    joined: ClassVar[str] = "JOIN"
    locking: ClassVar[str] = ""
    deleting: ClassVar[str] = "{}"
    staying: ClassVar[str] = "NOT {}"

    @property
    def staged(self) -> tuple[str, ...]:
        """The columns of a staged row, as it comes from the spool."""
        return (*self.columns, deletes_column(self.columns)) if self.deletes else self.columns

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

    def read_outdated(self) -> str:
        """Select the staged rows that are not the newest of their key, or that are older than the table's row with their key."""
        return f"SELECT {self._selected('s')} FROM {self.stage} AS s WHERE s.{self._number} IN ({self._outdated})"

    def delete_outdated(self) -> str:
        """Delete the staged rows that `read_outdated` selects: each other one is to be the table's row of its key."""
        return f"DELETE FROM {self.stage} WHERE {self._number} IN ({self._outdated})"

    def read_compared(self, *, since: bool) -> str:
        """Select the table's rows with the key of a staged row, and lock them. Each key is staged once.

        `since`: of a table with history, only versions that had not ended at the time of the staged row.
        """
        to, start = self.quoted(VALID_TO), self.quoted(VALID_FROM)
        still = f" AND (t.{to} IS NULL OR t.{to} >= s.{start})" if since else ""
        there = f"{self.stage} AS s {self.joined} {self.name} AS t{self.kept} ON {self._same('t', 's')}{still}"
        return f"SELECT {self._selected('t')} FROM {there}{self.locking}"

    def hold(self) -> str:
        """Keep others from altering the table until the end of the transaction; they can still write rows."""
        return f"SELECT 1 FROM {self.name} LIMIT 0"

    @property
    def _number(self) -> str:
        """The column `number`, as it is named in SQL."""
        return self.number

    def _staged_defined(self, declared: Sequence[str]) -> list[str]:
        """Return the definitions of the columns of a staged row."""
        return [f"{self.quoted(name)} {kind}{self.null}" for name, kind in zip(self.staged, declared, strict=True)]

    def _deletes(self, of: str) -> str:
        """Return the condition that a staged row deletes."""
        return self.deleting.format(f"{of}.{self.quoted(self.staged[-1])}")

    def _or_deletes(self, of: str) -> str:
        """Return ` OR`, and the condition that a staged row deletes; nothing where none does."""
        return f" OR {self._deletes(of)}" if self.deletes else ""

    def _stays(self, of: str) -> str:
        """Return ` AND`, and the condition that a staged row does not delete; nothing where none does."""
        return f" AND {self.staying.format(f'{of}.{self.quoted(self.staged[-1])}')}" if self.deletes else ""

    def _chosen(self, *, last: bool) -> str:
        """Select the number of the last or the first staged row of each key."""
        return f"SELECT {'MAX' if last else 'MIN'}({self._number}) FROM {self.stage} GROUP BY {self._list(self.key)}"

    def _newest(self, which: str) -> str:
        """Select the numbers of staged rows by their place among those of their key: 1 is the newest, the last if equally new."""
        newest = f"{self._sequence('')} DESC, {self._number} DESC"
        place = f"ROW_NUMBER() OVER (PARTITION BY {self._list(self.key)} ORDER BY {newest})"
        ranked = f"SELECT {self._number}, {place} AS penstock_place FROM {self.stage}"
        return f"SELECT r.{self._number} FROM ({ranked}) AS r WHERE r.penstock_place {which}"

    @property
    def _outdated(self) -> str:
        there = f"{self.stage} AS s JOIN {self.name} AS t{self.kept} ON {self._same('t', 's')}"
        return f"{self._newest('> 1')} UNION ALL SELECT s.{self._number} FROM {there} WHERE {self._is_older}"

    @property
    def _is_older(self) -> str:
        """The condition that a staged row `s` is older than the table's row `t`. NULL there is older than every value."""
        return f"{self._sequence('s.')} < {self._sequence('t.')}"

    def _sequence(self, of: str) -> str:
        """Return the column `sequence_by` of `of`, as it is compared."""
        return self.sequence_as.format(of + self.quoted(self.sequence_by or self.number))

    def _same(self, one: str, other: str) -> str:
        """Return the condition that rows of two tables have the same key."""
        return " AND ".join(f"{one}.{self.quoted(name)} = {other}.{self.quoted(name)}" for name in self.key)
