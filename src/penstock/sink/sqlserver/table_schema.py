"""The user's table in SQL Server: its schema in the catalog, and whether it takes the rows and returns them unchanged."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.sink.sqlserver import statements as sql
from penstock.sink.sqlserver.database import Connection
from penstock.sink.sqlserver.row_validator import RowValidator
from penstock.sink.sqlserver.statements import TableStatements, folded, quoted, require_name, split_name
from penstock.sink.sqlserver.storage import declared_as_key, most_units, storage_of, units_of
from penstock.sink.table.columns import (
    Alter,
    Columns,
    Lengths,
    TableColumn,
    lengths_of,
    require_columns,
    require_distinct_names,
    require_exact_key,
    require_keyed,
    sizes_of,
)
from penstock.sink.table.target import PRIVILEGES, Target, not_a_table

MAX_COLUMNS = 1023
"""One less than SQL Server's own limit: the staging table has one more."""
_ALTER = Alter(
    nullable="ALTER TABLE {table} ALTER COLUMN {column} {declared} NULL",
    retype="ALTER TABLE {table} ALTER COLUMN {column} {declared}",
    quoted=quoted,
)
_OF_SCALE = frozenset({"datetime2", "datetimeoffset", "time"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(TableColumn):
    """One column of an existing table, with its collation."""

    collation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """An existing table or view as the catalog declares it.

    `uniques`: the sets of columns that a unique index covers. `policies`: security policies in force, which hide rows from
    readers or keep rows out.
    """

    kind: str
    in_memory: bool
    is_external: bool
    is_history: bool
    policies: tuple[str, ...]
    columns: tuple[Column, ...]
    uniques: tuple[frozenset[str], ...]

    @property
    def what(self) -> str:
        """The kind with its article; tables that store no rows of their own, or not on disk, have kinds of their own."""
        kinds = {
            "a memory-optimized table": self.in_memory,
            "an external table": self.is_external,
            "a history table": self.is_history,
            "a table": self.kind == "table",
        }
        return next((name for name, found in kinds.items() if found), f"a {self.kind}")

    @property
    def required(self) -> frozenset[str]:
        """The columns that take no NULL, in lower case."""
        return frozenset(folded(column.name) for column in self.columns if column.not_null)

    def column(self, name: str) -> Column | None:
        """Return the column of that name, regardless of case."""
        return next((column for column in self.columns if folded(column.name) == folded(name)), None)


def table_schema_of(connection: Connection, schema: str, table: str) -> TableSchema | None:
    """Return the table or view as the catalog declares it, None if there is none."""
    place = {"schema": schema, "table": table}
    found = connection.execute(sql.TABLE_KIND, place).fetchone()
    if found is None:
        return None
    uniques = connection.execute(sql.TABLE_UNIQUES, place).fetchall()
    policies = connection.execute(sql.TABLE_POLICIES, place).fetchall()
    return TableSchema(
        kind={"USER_TABLE": "table"}.get(found[0], str(found[0]).lower().replace("_", " ")),
        in_memory=bool(found[1]),
        is_external=bool(found[2]),
        is_history=found[3] == "HISTORY_TABLE",
        policies=tuple(str(name) for (name,) in policies),
        columns=tuple(_column(row) for row in connection.execute(sql.TABLE_COLUMNS, place).fetchall()),
        uniques=tuple(frozenset(folded(name) for _, name in rows) for _, rows in groupby(uniques, key=itemgetter(0))),
    )


def _column(row: Sequence[Any]) -> Column:
    name, kind, length, precision, scale, collation, nullable, identity, computed, always, default = row
    generated = bool(identity or computed or always) or kind == "timestamp"
    return Column(
        name=name,
        declared=_declared(kind, length, precision, scale),
        collation=collation,
        not_null=not nullable,
        generated=generated,
        fills_itself=generated or bool(default),
    )


def _declared(kind: str, length: int, precision: int, scale: int) -> str:
    if kind in {"decimal", "numeric"}:
        return f"{kind}({precision},{scale})"
    if kind in _OF_SCALE:
        return f"{kind}({scale})"
    if kind.endswith(("char", "binary")):
        wide = 2 if kind.startswith("n") else 1
        return f"{kind}({'max' if length == -1 else length // wide})"
    return kind


# --- what the rows and the settings must be


def require_storable(schema: "pa.Schema", target: Target) -> None:
    """Raise Usage for a table name, a column or a key that no table can have."""
    if folded(split_name(target.table)[1]) in sql.OWN_TABLES:
        raise Usage(f"Table {target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
    require_distinct_names([folded(require_name(name)) for name in schema.names], database="SQL Server")
    require_keyed(schema, target.key, most=MAX_COLUMNS)
    require_exact_key(schema, target.key)


def statements_of(schema: "pa.Schema", target: Target) -> TableStatements:
    """Return the SQL about the target for rows of `schema`."""
    return TableStatements(*split_name(target.table), tuple(schema.names), target.key)


def create_table(connection: Connection, schema: "pa.Schema", target: Target) -> None:
    """Create the table."""
    kinds = [
        declared_as_key(field.type) if field.name in target.key else storage_of(field.type).declared(field.type)
        for field in schema
    ]
    declared = [kind + f" COLLATE {sql.EXACT}" if kind.startswith("nvarchar") else kind for kind in kinds]
    connection.execute(statements_of(schema, target).create(declared))


def hold(connection: Connection, schema: "pa.Schema", target: Target) -> TableSchema:
    """Keep others from altering the table until the end of the transaction, and return its schema."""
    connection.execute(statements_of(schema, target).hold())
    table_schema = table_schema_of(connection, *split_name(target.table))
    assert table_schema is not None, "it is held"
    return table_schema


def staged_for(schema: "pa.Schema", key: Sequence[str], table_schema: TableSchema) -> list[tuple[str, str]]:
    """Return type and collation of the staging table's columns: Arrow's own, but for the key the table's, to use its index."""
    return [_staged(field, table_schema.column(field.name) if field.name in key else None) for field in schema]


def _staged(field: "pa.Field", column: Column | None) -> tuple[str, str]:
    declared = storage_of(field.type).declared(field.type)
    if column is None or not declared.endswith("(max)"):
        return declared, ""
    return column.declared, f" COLLATE {column.collation}" if column.collation else ""


def require_fit(_: Connection, table_schema: TableSchema, schema: "pa.Schema", target: Target, *, decided: bool = False) -> None:
    """Raise Refused unless an existing table takes rows of `schema` and returns them unchanged. `decided`: see `Columns`."""
    table = target.table
    if table_schema.what != "a table":
        raise not_a_table(table, table_schema.what, expected="a table on disk")
    if table_schema.policies:
        policy = table_schema.policies[0]
        raise Refused(
            f"Security policy {policy!r} is in force on table {table!r}: rows could be hidden from `verify`, or kept out.",
            remedy=f"ALTER SECURITY POLICY {policy} WITH (STATE = OFF), or name a table without one in `table:`.",
        )
    of = _columns(schema, target, decided=decided)
    require_columns(table_schema.columns, schema, of=of, storage_of=storage_of, folded=folded)
    if not target.key:
        return
    _require_collated_key(table_schema, target, of)
    if frozenset(map(folded, target.key)) not in table_schema.uniques:
        remedy = "CREATE UNIQUE INDEX … ON {table} ({columns}), without a filter and without IGNORE_DUP_KEY."
        raise of.no_unique_index(target.key, remedy=remedy)


def lengths(table_schema: TableSchema, schema: "pa.Schema", target: Target) -> Lengths:
    """Return how long texts may be; of a longer one, SQL Server would silently cut the blanks at its end."""
    columns = {folded(column.name): column for column in table_schema.columns}
    most = lengths_of(schema, lambda name: most_units(columns[folded(name)].declared))
    of, text = _columns(schema, target, decided=True), pa.string()
    return Lengths(of=of, most=most, measure=units_of, unit="units of UTF-16", declared=storage_of(text).declared(text))


def _columns(schema: "pa.Schema", target: Target, *, decided: bool) -> Columns:
    return Columns(table=target.table, named=statements_of(schema, target).name, alter=_ALTER, decided=decided)


def _require_collated_key(table_schema: TableSchema, target: Target, of: Columns) -> None:
    for name in target.key:
        column = table_schema.column(name)
        if column is not None and column.collation is not None and not column.collation.upper().endswith(("_BIN2", "_BIN2_UTF8")):
            raise Refused(
                f"Column {name!r} of the key of table {target.table!r} has the collation {column.collation}, which takes "
                f"different texts for equal, expected one that ends in _BIN2, such as {sql.EXACT}.",
                remedy=f"ALTER TABLE {of.named} ALTER COLUMN {quoted(name)} … COLLATE {sql.EXACT}.",
            )


def require_allowed(connection: Connection, _: TableSchema, schema: "pa.Schema", target: Target) -> None:
    """Raise Refused if the user lacks a privilege that publishing needs."""
    for privilege in PRIVILEGES[target.write]:
        asked = {"table": statements_of(schema, target).name, "privilege": privilege}
        if connection.execute(sql.PRIVILEGES, asked).fetchone()[0] != 1:
            raise Refused(
                f"The user lacks {privilege} on table {target.table!r}.", remedy=f"GRANT {privilege} ON {target.table} to it."
            )


def row_validator(_: Connection, table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
    """Return the check of rows for an existing table."""
    key = frozenset(map(folded, target.key))
    return RowValidator(
        sink=sink,
        table=target.table,
        required=table_schema.required | key,
        key=key,
        units=sizes_of({folded(column.name): column.declared for column in table_schema.columns}, most_units),
    )
