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
from penstock.sink.table.table_statements import StagedTableStatements

_KEPT = "WITH (UPDLOCK, HOLDLOCK)"
DROP_STAGE = f"DROP TABLE IF EXISTS {STAGE}"
"""A staging table lives as long as the session."""
COUNT_STAGE = f"SELECT COUNT(*) FROM {STAGE}"


@dataclass(frozen=True, slots=True)
class TableStatements(StagedTableStatements):
    """The statements about the user's table, whose rows have `columns`; the staging table has these and `number`."""

    stage = STAGE

    def quoted(self, name: str) -> str:
        return quoted(name)

    @property
    def _number(self) -> str:
        return quoted(self.number)

    def create(self, declared: Sequence[str]) -> str:
        """Create the table with the types `declared`. The key becomes the primary key."""
        parts = [
            f"{self.quoted(name)} {kind} {'NOT NULL' if name in self.key else 'NULL'}"
            for name, kind in zip(self.columns, declared, strict=True)
        ]
        if self.key:
            parts.append(f"PRIMARY KEY NONCLUSTERED ({self._list(self.key)})")
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"

    def create_stage(self, declared: Sequence[str]) -> str:
        """Create the staging table, which nobody else sees."""
        parts = [f"{self.quoted(name)} {kind} NULL" for name, kind in zip(self.columns, declared, strict=True)]
        return f"CREATE TABLE {STAGE} ({self._number} bigint NOT NULL, {', '.join(parts)})"

    def hold(self) -> str:
        """Keep others from altering the table until the end of the transaction; they can still write rows."""
        return f"SELECT TOP (1) 1 FROM {self.name} WITH (REPEATABLEREAD)"

    def read(self) -> str:
        return f"SELECT {self._list(self.columns)} FROM {self.name}"

    # --- by key

    def read_unchosen(self, *, last: bool) -> str:
        """Read the staged rows that are not the last, or the first, of their key."""
        return f"SELECT {self._list(self.columns, 's')} FROM {STAGE} AS s WHERE NOT {self._is_chosen(last=last)}"

    def lock_there(self) -> str:
        """Read the rows of the table that have a key of the batch; nobody else can change or add such rows now."""
        return (
            f"SELECT {self._list(self.columns, 't')} FROM {self.name} AS t {_KEPT} "
            f"JOIN {STAGE} AS s ON {self._same('t', 's')} WHERE {self._is_chosen(last=True)}"
        )

    def lock_skipped(self) -> str:
        """Read the first staged row of each key in the table; from now on such keys neither come nor go."""
        return f"SELECT {self._list(self.columns, 's')} {self._first} AND {self._is_there}"

    def upsert(self) -> str:
        """Move the last staged row of each key; it replaces the other columns of a row with the same key."""
        others = [name for name in self.columns if name not in self.key] or list(self.key)
        changes = ", ".join(f"t.{self.quoted(name)} = s.{self.quoted(name)}" for name in others)
        chosen = f"SELECT {self._list(self.columns, 's')} FROM {STAGE} AS s WHERE {self._is_chosen(last=True)}"
        return (
            f"MERGE INTO {self.name} WITH (HOLDLOCK) AS t USING ({chosen}) AS s ON {self._same('t', 's')} "
            f"WHEN MATCHED THEN UPDATE SET {changes} "
            f"WHEN NOT MATCHED BY TARGET THEN INSERT ({self._list(self.columns)}) VALUES ({self._list(self.columns, 's')});"
        )

    def insert_if_absent(self) -> str:
        """Move the first staged row of each key that the table lacks."""
        chosen = f"SELECT {self._list(self.columns, 's')} {self._first} AND NOT {self._is_there}"
        return f"INSERT INTO {self.name} ({self._list(self.columns)}) {chosen}"

    @property
    def _first(self) -> str:
        return f"FROM {STAGE} AS s WHERE {self._is_chosen(last=False)}"

    @property
    def _is_there(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self.name} AS t {_KEPT} WHERE {self._same('t', 's')})"

    def _is_chosen(self, *, last: bool) -> str:
        return f"s.{self._number} IN ({self._chosen(last=last)})"
