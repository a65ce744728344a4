"""SQL of the postgres sink about the user's table and the staging table."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier

_NOTHING = SQL("")
STAGE = Identifier("pg_temp", "penstock_stage")
ANALYZE_STAGE = SQL("ANALYZE {}").format(STAGE)
COUNT_STAGE = SQL("SELECT count(*) FROM {}").format(STAGE)
DROP_STAGE = SQL("DROP TABLE IF EXISTS {}").format(STAGE)
"""Needed because several sinks stage one after the other in one transaction of a ledger."""
SAVEPOINT = SQL("SAVEPOINT penstock_rehearsal")
ROLLBACK_TO_SAVEPOINT = SQL("ROLLBACK TO SAVEPOINT penstock_rehearsal")


@dataclass(frozen=True, slots=True)
class TableStatements:
    """The statements about the user's table, whose rows have `columns`; the staging table has `ordinal` as well."""

    schema: str
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()

    @property
    def name(self) -> Identifier:
        return Identifier(self.schema, self.table)

    @property
    def ordinal(self) -> str:
        """The staging table's column that numbers its rows: a name that no other column has."""
        name = "penstock_row"
        while name in self.columns:
            name += "_"
        return name

    def create(self, declared: Sequence[str]) -> Composed:
        """Create the table with column types `declared`. The key becomes the primary key."""
        parts: list[Composable] = [_column(name, kind) for name, kind in zip(self.columns, declared, strict=True)]
        if self.key:
            parts.append(SQL("PRIMARY KEY ({})").format(_list(self.key)))
        return SQL("CREATE TABLE {} ({})").format(self.name, SQL(", ").join(parts))

    def lock(self) -> Composed:
        """Lock the table's definition until the transaction ends; other sessions can go on writing rows."""
        return SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(self.name)

    def create_stage(self, staged: Sequence[str]) -> Composed:
        """Create the session's own staging table of types that have Arrow's binary form; it ends with the transaction."""
        parts = [_column(self.ordinal, "bigint"), *(_column(name, kind) for name, kind in zip(self.columns, staged, strict=True))]
        return SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(Identifier("penstock_stage"), SQL(", ").join(parts))

    def copy(self) -> Composed:
        """COPY into the staging table."""
        return _copy(STAGE, (self.ordinal, *self.columns))

    def copy_in(self) -> Composed:
        """COPY into the table itself."""
        return _copy(self.name, self.columns)

    def insert(self, casts: Sequence[str]) -> Composed:
        """Insert the staged rows. Where a cast is empty, assignment converts the value, or refuses what does not fit."""
        return SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
            self.name, _list(self.columns), self._cast(casts, self.columns), STAGE
        )

    def upsert(self, casts: Sequence[str]) -> Composed:
        """Insert or update the last staged row of each key; select how many were written, and how many of them replaced one."""
        others = [name for name in self.columns if name not in self.key] or list(self.key)
        changes = SQL(", ").join(SQL("{0} = excluded.{0}").format(Identifier(name)) for name in others)
        return SQL(
            "WITH moved AS ({} ON CONFLICT ({}) DO UPDATE SET {} RETURNING xmax <> 0 AS replaced) "
            "SELECT count(*), count(*) FILTER (WHERE replaced) FROM moved"
        ).format(self._insert_chosen(casts, last=True), _list(self.key), changes)

    def insert_if_absent(self, casts: Sequence[str]) -> Composed:
        """Insert the first staged row of each key that the table does not have."""
        return SQL("{} ON CONFLICT ({}) DO NOTHING").format(self._insert_chosen(casts, last=False), _list(self.key))

    def clear(self) -> Composed:
        return SQL("DELETE FROM {}").format(self.name)

    def read(self, read_as: Sequence[str]) -> Composed:
        return SQL("SELECT {} FROM {}").format(self._cast(read_as, self.columns), self.name)

    def lock_replaced(self, read_as: Sequence[str], casts: Sequence[str]) -> Composed:
        """Select and lock the table's rows that an upsert will replace."""
        return SQL("SELECT {} FROM {} WHERE ({}) IN (SELECT {} FROM {}) FOR UPDATE").format(
            self._cast(read_as, self.columns), self.name, _list(self.key), self._key_cast(casts), STAGE
        )

    def read_superseded(self, read_as: Sequence[str], casts: Sequence[str]) -> Composed:
        """Select the staged rows that are not the last of their key."""
        return self._read_staged(read_as, SQL("NOT {}").format(self._is_chosen(casts, last=True)))

    def read_skipped(self, read_as: Sequence[str], casts: Sequence[str]) -> Composed:
        """Select the staged rows that are not the first of their key, and the first ones whose key the table has."""
        first = self._is_chosen(casts, last=False)
        same = SQL(" AND ").join(
            SQL("t.{} = {}").format(Identifier(name), self._cast([cast], [name], prefix=SQL("s.")))
            for name, cast in self._key_casts(casts)
        )
        there = SQL("EXISTS (SELECT 1 FROM {} t WHERE {})").format(self.name, same)
        return SQL("{} UNION ALL {}").format(
            self._read_staged(read_as, SQL("NOT {}").format(first)),
            self._read_staged(read_as, SQL("{} AND {}").format(first, there)),
        )

    def _read_staged(self, read_as: Sequence[str], which: Composed) -> Composed:
        return SQL("SELECT {} FROM {} s WHERE {}").format(self._cast(read_as, self.columns), STAGE, which)

    def _insert_chosen(self, casts: Sequence[str], *, last: bool) -> Composed:
        return SQL("{} s WHERE {}").format(self.insert(casts), self._is_chosen(casts, last=last))

    def _is_chosen(self, casts: Sequence[str], *, last: bool) -> Composed:
        """Return the condition that a staged row `s` is the last or the first of its key."""
        which = SQL("max" if last else "min")
        return SQL("EXISTS (SELECT 1 FROM (SELECT {}({}) AS chosen FROM {} GROUP BY {}) c WHERE c.chosen = s.{})").format(
            which, Identifier(self.ordinal), STAGE, self._key_cast(casts), Identifier(self.ordinal)
        )

    def _key_casts(self, casts: Sequence[str]) -> list[tuple[str, str]]:
        by_name = dict(zip(self.columns, casts, strict=True))
        return [(name, by_name[name]) for name in self.key]

    def _key_cast(self, casts: Sequence[str]) -> Composed:
        return self._cast([cast for _, cast in self._key_casts(casts)], self.key)

    def _cast(self, kinds: Sequence[str], names: Sequence[str], *, prefix: Composable = _NOTHING) -> Composed:
        parts = zip(kinds, names, strict=True)
        return SQL(", ").join(
            SQL("{}{}::{}").format(prefix, Identifier(name), _type(kind))
            if kind
            else SQL("{}{}").format(prefix, Identifier(name))
            for kind, name in parts
        )


def _copy(table: Identifier, columns: Sequence[str]) -> Composed:
    return SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(table, _list(columns))


def _column(name: str, kind: str) -> Composed:
    return SQL("{} {}").format(Identifier(name), _type(kind))


def _list(names: Sequence[str]) -> Composed:
    return SQL(", ").join(map(Identifier, names))


def _type(kind: str) -> SQL:
    return SQL(kind)  # from `storage` or the server's format_type(), never the user's text
