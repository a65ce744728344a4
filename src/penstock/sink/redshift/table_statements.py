"""All SQL of the redshift sink about the user's table and the temporary staging table beside it.

The staging table numbers its rows; of those with one key, the one with the highest or the lowest number is chosen.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.sink.redshift.names import quoted
from penstock.sink.table.table_statements import StagedTableStatements

STAGE = "penstock_stage"
DROP_STAGE = f"DROP TABLE {STAGE}"
"""For after the load only. Before the staging table exists, which ends with the session, the name may mean another table."""


@dataclass(frozen=True, slots=True)
class TableStatements(StagedTableStatements):
    """The statements about the user's table, whose rows have `columns`; the staging table has these and `number`."""

    stage = STAGE

    def quoted(self, name: str) -> str:
        return quoted(name)

    def create(self, declared: Sequence[str]) -> str:
        """Create the table with the types `declared`. No key is declared: Redshift would rely on it unenforced."""
        parts = [
            f"{self.quoted(name)} {kind}{' NOT NULL' if name in self.key else ''}"
            for name, kind in zip(self.columns, declared, strict=True)
        ]
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"

    def hold(self) -> str:
        """Keep others from altering the table until the end of the transaction; they can still write rows."""
        return f"SELECT 1 FROM {self.name} LIMIT 0"

    def create_stage(self, declared: Sequence[str]) -> str:
        """Create the staging table, which nobody else sees."""
        parts = [f"{self.quoted(name)} {kind}" for name, kind in zip(self.columns, declared, strict=True)]
        return f"CREATE TEMPORARY TABLE {STAGE} ({self.number} bigint NOT NULL, {', '.join(parts)})"

    def fill_stage(self, bound: Sequence[str], rows: int) -> str:
        """Insert so many rows, each with its number and its values in the expressions `bound`."""
        row = f"({', '.join(['CAST(%s AS bigint)', *bound])})"
        return f"INSERT INTO {STAGE} ({self.number}, {self._list(self.columns)}) VALUES {', '.join([row] * rows)}"

    def read(self, read: Sequence[str]) -> str:
        return f"SELECT {self._selected(read)} FROM {self.name}"

    # --- by key

    def read_unchosen(self, read: Sequence[str], *, last: bool) -> str:
        """Read the staged rows that are not the last, or the first, of their key."""
        return f"SELECT {self._selected(read, 's')} FROM {STAGE} s WHERE s.{self.number} NOT IN ({self._chosen(last=last)})"

    def read_there(self, read: Sequence[str]) -> str:
        """Read the rows of the table that have a key of the batch."""
        keys = f"SELECT DISTINCT {self._list(self.key)} FROM {STAGE}"
        return f"SELECT {self._selected(read, 't')} FROM {self.name} t JOIN ({keys}) s ON {self._same('t', 's')}"

    def read_skipped(self, read: Sequence[str]) -> str:
        """Read the first staged row of each key that the table has."""
        return f"SELECT {self._selected(read, 's')} {self._first} AND {self._is_there}"

    def delete_there(self) -> str:
        """Delete the rows of the table that have a key of the batch."""
        return f"DELETE FROM {self.name} USING {STAGE} WHERE {self._same(self.name, STAGE)}"

    def insert_chosen(self) -> str:
        """Move the last staged row of each key."""
        return f"{self.insert()} WHERE {self.number} IN ({self._chosen(last=True)})"

    def insert_if_absent(self) -> str:
        """Move the first staged row of each key that the table lacks."""
        columns = self._selected(["{}"] * len(self.columns), "s")
        return f"INSERT INTO {self.name} ({self._list(self.columns)}) SELECT {columns} {self._first} AND NOT {self._is_there}"

    @property
    def _first(self) -> str:
        return f"FROM {STAGE} s WHERE s.{self.number} IN ({self._chosen(last=False)})"

    @property
    def _is_there(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self.name} t WHERE {self._same('t', 's')})"
