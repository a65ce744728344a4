"""Schema of the user's table: read from the catalog, and checked to store every row without loss."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.statements import OWN_TABLES, TableStatements
from penstock.sink.sqlite.storage import RowValidator, storage_of
from penstock.sink.table.columns import Alter, Columns, TableColumn, missing_columns, require_columns, require_distinct_names
from penstock.sink.table.target import Target, not_a_table, require_distinct_fields, require_key_in

MAX_COLUMNS = 2000
_ALTER = Alter(nullable=None, retype=None)
_STRICT_SINCE = (3, 37, 0)
_GENERATED = frozenset({2, 3})
_BINARY = "BINARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """An existing table as SQLite describes it. Column names are in lower case, except in `columns`.

    `row_number`: the INTEGER PRIMARY KEY, which is SQLite's own number of each row. `uniques`: the sets of columns that identify
    a row.
    """

    kind: str
    strict: bool
    columns: tuple[TableColumn, ...]
    row_number: str | None
    uniques: tuple[frozenset[str], ...]

    @property
    def required(self) -> frozenset[str]:
        """The columns that hold no NULL, including the row number, in which SQLite would replace NULL."""
        names = {column.name.lower() for column in self.columns if column.not_null}
        return frozenset(names if self.row_number is None else {*names, self.row_number})


def table_schema_of(connection: sqlite3.Connection, table: str) -> TableSchema | None:
    """Return the table's schema, None if there is no such table."""
    found = connection.execute(sql.TABLE_KIND, (table,)).fetchone()
    if found is None:
        return None
    kind = "virtual table" if re.match(r"\s*CREATE\s+VIRTUAL", found[1], re.IGNORECASE) else str(found[0])
    known = sqlite3.sqlite_version_info >= _STRICT_SINCE
    [strict] = connection.execute(sql.TABLE_STRICT, (table,)).fetchone() if known else [False]
    rows = connection.execute(sql.TABLE_COLUMNS, (table,)).fetchall()
    key = [(name.lower(), declared.upper()) for name, declared, _, in_key, _, _ in rows if in_key]
    row_number = key[0][0] if len(key) == 1 and key[0][1] == "INTEGER" else None
    columns = tuple(
        TableColumn(
            name=name,
            declared="" if strict and declared.upper() == "ANY" else declared,  # both store every value as it is
            not_null=bool(not_null),
            generated=hidden in _GENERATED,
            fills_itself=default not in {None, "NULL"} or hidden in _GENERATED or name.lower() == row_number,
        )
        for name, declared, not_null, _, hidden, default in rows
    )
    uniques = [frozenset({row_number})] if row_number else []
    for (index,) in connection.execute(sql.TABLE_UNIQUES, (table,)).fetchall():
        parts = connection.execute(sql.INDEX_COLUMNS, (index,)).fetchall()
        if all(name is not None and collation == _BINARY for name, collation in parts):
            uniques.append(frozenset(name.lower() for name, _ in parts))
    return TableSchema(kind=kind, strict=bool(strict), columns=columns, row_number=row_number, uniques=tuple(uniques))


# --- checks of rows and settings


def require_storable(schema: "pa.Schema", target: Target) -> None:
    """Raise Usage for a table name, a column or a key that no table can have."""
    table, key = target.table, target.key
    if table.lower() in OWN_TABLES or table.lower().startswith("sqlite_"):
        raise Usage(f"Table {table!r} is SQLite's or Penstock's own.", remedy="Choose another name for `table:`.")
    names = [name.lower() for name in schema.names]
    require_distinct_names(names, database="SQLite")
    if not 0 < len(names) <= MAX_COLUMNS:
        raise Usage(f"The rows have {len(names)} columns, expected 1 to {MAX_COLUMNS}.", remedy="Select others in the transform.")
    require_key_in(schema, tuple(name.lower() for name in key), names)
    require_distinct_fields(schema)


def statements_of(schema: "pa.Schema", target: Target) -> TableStatements:
    """Return the SQL about the target for rows of `schema`."""
    return TableStatements(target.table, tuple(schema.names), target.key)


def create_table(connection: sqlite3.Connection, schema: "pa.Schema", target: Target) -> None:
    """Create the table; the key becomes its primary key."""
    connection.execute(statements_of(schema, target).create([storage_of(field.type).declared(field.type) for field in schema]))


def row_validator(_: sqlite3.Connection, table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
    """Return the check of rows in the tasks."""
    return RowValidator(
        sink=sink,
        table=target.table,
        required=table_schema.required | {name.lower() for name in target.key},
        no_nan=frozenset(column.name.lower() for column in table_schema.columns if table_schema.strict and column.declared),
    )


def require_fit(
    _: sqlite3.Connection, table_schema: TableSchema, schema: "pa.Schema", target: Target, *, decided: bool = False
) -> None:
    """Raise Refused unless the table takes rows of `schema` and gives the same back. `decided`: see `Columns`."""
    table, key = target.table, target.key
    if table_schema.kind != "table":
        raise not_a_table(table, f"a {table_schema.kind}")
    of = _columns(table, decided=decided)
    require_columns(table_schema.columns, schema, of=of, storage_of=storage_of, folded=str.lower)
    if key and frozenset(name.lower() for name in key) not in table_schema.uniques:
        columns = ", ".join(sql.quoted(name) for name in key)
        raise Refused(
            f"Table {table!r} has no unique index on exactly ({columns}), so its rows cannot be told apart by this key.",
            remedy=f"CREATE UNIQUE INDEX … ON {sql.quoted(table)} ({columns}).",
        )


def missing_in(_: sqlite3.Connection, table_schema: TableSchema, schema: "pa.Schema", target: Target) -> Mapping[str, str]:
    """Return the columns of `schema` that the table lacks, each with the statement that adds it."""
    of = _columns(target.table, decided=False)
    return missing_columns(table_schema.columns, schema, of=of, storage_of=storage_of, folded=str.lower)


def with_row_numbers(table_schema: TableSchema, batches: Iterator["pa.RecordBatch"], table: str) -> Iterator["pa.RecordBatch"]:
    """Yield the batches. Raises Refused at the first one with a NULL that SQLite would replace by a row number."""
    for batch in batches:
        for name in batch.schema.names:
            if name.lower() == table_schema.row_number and batch.column(name).null_count:
                raise Refused(
                    f"Column {name!r} of table {table!r} is the number of a row, which SQLite makes up in place of NULL, "
                    "and rows of the decided batch have NULL there.",
                    remedy=_columns(table, decided=True).made_anew(name, "as BIGINT"),
                )
        yield batch


def _columns(table: str, *, decided: bool) -> Columns:
    return Columns(table=table, named=sql.quoted(table), alter=_ALTER, decided=decided)
