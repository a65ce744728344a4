"""Schema of the user's table: read from the catalog, and checked to store every row without loss."""

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.statements import OWN_TABLES, TableStatements
from penstock.sink.sqlite.storage import RowValidator, restored, storage_of
from penstock.sink.table.columns import Alter, CatalogTable, DeclaresColumn, TableColumn, require_distinct_names
from penstock.sink.table.dialect import Rows, SqlTables
from penstock.sink.table.sequence import is_sequence_text, require_sequence_in
from penstock.sink.table.storage import batch_of
from penstock.sink.table.target import Target, not_a_table, require_distinct_fields, require_key_in

MAX_COLUMNS = 2000
_FETCHED_ROWS = 20_000
_STRICT_SINCE = (3, 37, 0)
_GENERATED = frozenset({2, 3})
_BINARY = "BINARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema(CatalogTable):
    """An existing table as SQLite describes it. Column names are in lower case, except in `columns`.

    `row_number`: the INTEGER PRIMARY KEY, which is SQLite's own number of each row. `uniques`: the sets of columns that identify
    a row.
    """

    strict: bool
    row_number: str | None
    uniques: tuple[frozenset[str], ...]

    fold = staticmethod(str.lower)

    @property
    def required(self) -> frozenset[str]:
        """The columns that hold no NULL, including the row number, in which SQLite would replace NULL."""
        names = super(TableSchema, self).required
        return names if self.row_number is None else names | {self.row_number}


def table_schema_of(connection: sqlite3.Connection, _: str, table: str) -> TableSchema | None:
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


class Tables(SqlTables[sqlite3.Connection, TableSchema, TableStatements]):
    """The user's tables in an SQLite file."""

    database = "SQLite"
    own_tables = OWN_TABLES
    alter = Alter(nullable=None, retype=None)
    statements = TableStatements
    table_schema_of = staticmethod(table_schema_of)

    @staticmethod
    def split_name(name: str) -> tuple[str, str]:
        return "main", name

    def named(self, target: Target) -> str:
        return sql.quoted(target.table)

    def storage_of(self, _: sqlite3.Connection, __: "pa.Schema") -> Callable[["pa.DataType"], DeclaresColumn]:
        return storage_of

    def statements_of(self, rows: "pa.Schema", target: Target) -> TableStatements:
        return TableStatements("main", target.table, tuple(rows.names), target.key, sequence_by=target.sequence_by)

    def scan(self, connection: sqlite3.Connection, query: str, rows: "pa.Schema") -> Rows:
        cursor = connection.execute(query)
        while found := cursor.fetchmany(_FETCHED_ROWS):
            yield batch_of(found, rows, restored)

    def require_storable(self, rows: "pa.Schema", target: Target) -> None:
        if target.table.lower() in self.own_tables or target.table.lower().startswith("sqlite_"):
            raise Usage(f"Table {target.table!r} is SQLite's or Penstock's own.", remedy="Choose another name for `table:`.")
        names = [name.lower() for name in rows.names]
        require_distinct_names(names, database=self.database)
        if not 0 < len(names) <= MAX_COLUMNS:
            raise Usage(
                f"The rows have {len(names)} columns, expected 1 to {MAX_COLUMNS}.", remedy="Select others in the transform."
            )
        require_key_in(rows, tuple(name.lower() for name in target.key), names)
        require_sequence_in(rows, target, fold=str.lower, unordered={"DECIMAL"})  # a text there
        require_distinct_fields(rows)

    def require_fit(
        self,
        connection: sqlite3.Connection,
        table_schema: TableSchema,
        rows: "pa.Schema",
        target: Target,
        *,
        decided: bool = False,
    ) -> None:
        if table_schema.kind != "table":
            raise not_a_table(target.table, f"a {table_schema.kind}")
        if is_sequence_text(rows, target, fold=str.lower):
            _require_utf8(connection, target)
        of = self.require_columns(connection, table_schema, rows, target, decided=decided)
        if target.key and frozenset(name.lower() for name in target.key) not in table_schema.uniques:
            raise of.no_unique_index(target.key)

    def row_check(self, _: sqlite3.Connection, table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
        return RowValidator(
            sink=sink,
            table=target.table,
            required=table_schema.required | {name.lower() for name in target.filled},
            no_nan=frozenset(name for name, column in table_schema.by_name.items() if table_schema.strict and column.declared),
        )


TABLES = Tables()


def _require_utf8(connection: sqlite3.Connection, target: Target) -> None:
    """Raise Refused where texts are stored as UTF-16: their bytes, which SQLite compares, are not in the order of code points."""
    [[encoding]] = connection.execute("PRAGMA encoding").fetchall()
    if encoding != "UTF-8":
        raise Refused(
            f"The texts of `sequence_by: {target.sequence_by}` are compared as UTF-8, and the SQLite file stores {encoding}.",
            remedy="Cast the column in the transform to BIGINT or TIMESTAMP, or name a file in UTF-8.",
        )


def with_row_numbers(table_schema: TableSchema, batches: Rows, target: Target) -> Rows:
    """Yield the batches. Raises Refused at the first one with a NULL that SQLite would replace by a row number."""
    for batch in batches:
        for name in batch.schema.names:
            if name.lower() == table_schema.row_number and batch.column(name).null_count:
                raise Refused(
                    f"Column {name!r} of table {target.table!r} is the number of a row, which SQLite makes up in place of NULL, "
                    "and rows of the decided batch have NULL there.",
                    remedy=TABLES.columns(target, decided=True).made_anew(name, "as BIGINT"),
                )
        yield batch
