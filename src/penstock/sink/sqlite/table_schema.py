"""Schema of the user's table: read from the catalog, and checked to store every row without loss."""

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import Refused, Usage
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.statements import OWN_TABLES, TableStatements
from penstock.sink.sqlite.storage import storage_of
from penstock.sink.table.columns import Alter, Columns, require_distinct_names
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.target import Target, not_a_table, require_distinct_fields, require_key_in

MAX_COLUMNS = 2000
_ALTER = Alter(nullable=None, retype=None)
_STRICT_SINCE = (3, 37, 0)
_GENERATED = frozenset({2, 3})
_BINARY = "BINARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of an existing table."""

    name: str
    declared: str
    not_null: bool
    key_place: int
    generated: bool
    fills_itself: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """An existing table as SQLite describes it. `uniques`: the sets of columns, in lower case, that identify a row."""

    kind: str
    strict: bool
    columns: tuple[Column, ...]
    uniques: tuple[frozenset[str], ...]

    @property
    def is_named(self) -> bool:
        """Whether this table of markers has the column `ledger_id`, which an older Penstock did not create."""
        return any(column.name == LEDGER_ID for column in self.columns)

    @property
    def required(self) -> frozenset[str]:
        """The columns, in lower case, that hold no NULL, including the row number, in which SQLite would replace NULL."""
        return frozenset(column.name.lower() for column in self.columns if column.not_null or column is self.row_number)

    def fills(self, column: Column) -> bool:
        """Return whether the column may be left out although it holds no NULL."""
        return column.fills_itself or column.generated or column is self.row_number

    @property
    def row_number(self) -> Column | None:
        """The INTEGER PRIMARY KEY, which is SQLite's own number of each row; None if there is none."""
        return _row_number(self.columns)


def table_schema_of(cursor: sqlite3.Cursor, table: str) -> TableSchema | None:
    """Read the table's schema, None if there is no such table."""
    found = cursor.execute(sql.TABLE_KIND, (table,)).fetchone()
    if found is None:
        return None
    kind = "virtual table" if re.match(r"\s*CREATE\s+VIRTUAL", found[1], re.IGNORECASE) else str(found[0])
    rows = cursor.execute(sql.TABLE_COLUMNS, (table,)).fetchall()
    columns = tuple(
        Column(
            name=name,
            declared=declared,
            not_null=bool(not_null),
            key_place=place,
            generated=hidden in _GENERATED,
            fills_itself=default not in {None, "NULL"},
        )
        for name, declared, not_null, place, hidden, default in rows
    )
    known = sqlite3.sqlite_version_info >= _STRICT_SINCE
    strict = cursor.execute(sql.TABLE_STRICT, (table,)).fetchone() if known else None
    return TableSchema(kind=kind, strict=bool(strict and strict[0]), columns=columns, uniques=_uniques(cursor, table, columns))


def _uniques(cursor: sqlite3.Cursor, table: str, columns: tuple[Column, ...]) -> tuple[frozenset[str], ...]:
    number = _row_number(columns)
    found = [] if number is None else [frozenset({number.name.lower()})]
    for (index,) in cursor.execute(sql.TABLE_UNIQUES, (table,)).fetchall():
        parts = cursor.execute(sql.INDEX_COLUMNS, (index,)).fetchall()
        if all(name is not None and collation == _BINARY for name, collation in parts):
            found.append(frozenset(name.lower() for name, _ in parts))
    return tuple(found)


def _row_number(columns: tuple[Column, ...]) -> Column | None:
    key = [column for column in columns if column.key_place]
    return key[0] if len(key) == 1 and key[0].declared.upper() == "INTEGER" else None


# --- checks of rows and settings


def require_storable(schema: "pa.Schema", table: str, key: tuple[str, ...]) -> None:
    """Raise Usage for a table name, a column or a key that no table can have."""
    if table.lower() in OWN_TABLES or table.lower().startswith("sqlite_"):
        raise Usage(f"Table {table!r} is SQLite's or Penstock's own.", remedy="Choose another name for `table:`.")
    names = [name.lower() for name in schema.names]
    require_distinct_names(names, database="SQLite")
    if not 0 < len(names) <= MAX_COLUMNS:
        raise Usage(f"The rows have {len(names)} columns, expected 1 to {MAX_COLUMNS}.", remedy="Select others in the transform.")
    require_key_in(schema, tuple(name.lower() for name in key), names)
    require_distinct_fields(schema)


def create_statement(schema: "pa.Schema", table: str, key: tuple[str, ...]) -> str:
    """Return the statement that creates the table for rows of `schema`."""
    declared = [storage_of(field.type).declared for field in schema]
    return TableStatements(table, tuple(schema.names), key).create(declared)


def require_fit(table_schema: TableSchema, schema: "pa.Schema", target: Target, *, decided: bool = False) -> None:
    """Raise Refused unless the table takes rows of `schema` and gives the same back. `decided`: see `Columns`."""
    table, key = target.table, target.key
    if table_schema.kind != "table":
        raise not_a_table(table, f"a {table_schema.kind}")
    of = _columns(table, decided=decided)
    _require_names(table_schema, schema, of)
    kinds = {field.name.lower(): field for field in schema}
    for column in table_schema.columns:
        if column.name.lower() in kinds:
            _require_kept(column, kinds[column.name.lower()], of, strict=table_schema.strict)
    if key and frozenset(name.lower() for name in key) not in table_schema.uniques:
        columns = ", ".join(sql.quoted(name) for name in key)
        raise Refused(
            f"Table {table!r} has no unique index on exactly ({columns}), so its rows cannot be told apart by this key.",
            remedy=f"CREATE UNIQUE INDEX … ON {sql.quoted(table)} ({columns}).",
        )


def with_row_numbers(table_schema: TableSchema, batches: Iterator["pa.RecordBatch"], table: str) -> Iterator["pa.RecordBatch"]:
    """Yield the batches. Raises Refused at the first one with a NULL that SQLite would replace by a row number."""
    number = table_schema.row_number
    for batch in batches:
        for name in batch.schema.names:
            if number is not None and name.lower() == number.name.lower() and batch.column(name).null_count:
                raise Refused(
                    f"Column {number.name!r} of table {table!r} is the number of a row, which SQLite makes up in place of NULL, "
                    "and rows of the decided batch have NULL there.",
                    remedy=_columns(table, decided=True).made_anew(number.name, "as BIGINT"),
                )
        yield batch


def _columns(table: str, *, decided: bool) -> Columns:
    return Columns(table=table, named=sql.quoted(table), alter=_ALTER, decided=decided)


def _require_names(table_schema: TableSchema, schema: "pa.Schema", of: Columns) -> None:
    ours, there = {name.lower() for name in schema.names}, {column.name.lower() for column in table_schema.columns}
    left = [column for column in table_schema.columns if column.name.lower() not in ours]
    of.require_same(
        {field.name: storage_of(field.type).declared for field in schema},
        {column.name: column.declared for column in table_schema.columns},
        missing=[name for name in schema.names if name.lower() not in there],
        demanded=[column.name for column in left if column.not_null and not table_schema.fills(column)],
    )


def _require_kept(column: Column, field: "pa.Field", of: Columns, *, strict: bool) -> None:
    of.require_not_generated(column.name, generated=column.generated)
    storage = storage_of(field.type)
    if affinity(column.declared, strict=strict) not in storage.affinities:
        raise of.other_type(column.name, column.declared, field.type, expected=storage.declared, declared=storage.declared)


def affinity(declared: str, *, strict: bool) -> str:
    """Return the affinity of a column so declared (sqlite.org, "Datatypes In SQLite", section 3.1)."""
    name = declared.upper()
    if strict and name == "ANY":
        return "BLOB"
    for found, parts in (
        ("INTEGER", ("INT",)),
        ("TEXT", ("CHAR", "CLOB", "TEXT")),
        ("BLOB", ("BLOB",)),
        ("REAL", ("REAL", "FLOA", "DOUB")),
    ):
        if any(part in name for part in parts):
            return found
    return "NUMERIC" if name else "BLOB"
