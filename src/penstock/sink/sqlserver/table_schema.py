"""The user's table in SQL Server: its schema in the catalog, and whether it takes the rows and returns them unchanged."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from penstock.core.model import SinkName
from penstock.errors import Refused
from penstock.sink.sqlserver import statements as sql
from penstock.sink.sqlserver.database import Connection
from penstock.sink.sqlserver.row_validator import RowValidator
from penstock.sink.sqlserver.statements import TableStatements, folded, folded_name, quoted, require_name, split_name
from penstock.sink.sqlserver.storage import KEY_TYPES, STORAGES, most_units, storage_of, units_of
from penstock.sink.table.columns import Alter, CatalogTable, Columns, TableColumn, require_exact_key
from penstock.sink.table.served import ServedTables
from penstock.sink.table.target import Target, not_a_table

_OF_SCALE = frozenset({"datetime2", "datetimeoffset", "time"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema(CatalogTable):
    """An existing table or view as the catalog declares it.

    `uniques`: the sets of columns that a unique index covers. `policies`: security policies in force, which hide rows from
    readers or keep rows out.
    """

    in_memory: bool
    is_external: bool
    is_history: bool
    policies: tuple[str, ...]
    uniques: tuple[frozenset[str], ...]

    fold = staticmethod(folded)

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


def _column(row: Sequence[Any]) -> TableColumn:
    name, kind, length, precision, scale, collation, nullable, identity, computed, always, default = row
    generated = bool(identity or computed or always) or kind == "timestamp"
    return TableColumn(
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


class Tables(ServedTables[Connection, TableSchema, TableStatements]):
    """The user's tables in SQL Server."""

    database = "SQL Server"
    own_tables = sql.OWN_TABLES
    most_columns = 1023
    alter = Alter(
        nullable="ALTER TABLE {table} ALTER COLUMN {column} {declared} NULL",
        retype="ALTER TABLE {table} ALTER COLUMN {column} {declared}",
        quoted=quoted,
    )
    statements = TableStatements
    storages = STORAGES
    key_types = KEY_TYPES
    collated = ("nvarchar",)
    unit = "units of UTF-16"
    split_name, require_name, fold = staticmethod(split_name), staticmethod(require_name), staticmethod(folded)
    length_of, measure = staticmethod(most_units), staticmethod(units_of)
    folded_name, table_schema_of = staticmethod(folded_name), staticmethod(table_schema_of)

    def require_storable(self, rows: "pa.Schema", target: Target) -> None:
        super().require_storable(rows, target)
        require_exact_key(rows, target.key)

    def collate(self, _: Connection) -> str:
        return f" COLLATE {sql.EXACT}"

    def require_fit(
        self, connection: Connection, table_schema: TableSchema, rows: "pa.Schema", target: Target, *, decided: bool = False
    ) -> None:
        table = target.table
        if table_schema.what != "a table":
            raise not_a_table(table, table_schema.what, expected="a table on disk")
        _require_no_policy(
            table_schema, table, "rows could be hidden from `verify`", then="or name a table without one in `table:`"
        )
        of = self.require_columns(connection, table_schema, rows, target, decided=decided)
        if not target.key:
            return
        _require_collated_key(table_schema, target, of)
        if frozenset(map(folded, target.key)) not in table_schema.uniques:
            raise of.no_unique_index(target.key, which=", without a filter and without IGNORE_DUP_KEY")

    def require_allowed(self, connection: Connection, _: TableSchema, rows: "pa.Schema", target: Target) -> None:
        for privilege in target.privileges:
            asked = {"table": self.statements_of(rows, target).name, "privilege": privilege}
            if connection.execute(sql.PRIVILEGES, asked).fetchone()[0] != 1:
                raise Refused(
                    f"The user lacks {privilege} on table {target.table!r}.", remedy=f"GRANT {privilege} ON {target.table} to it."
                )

    def row_check(self, _: Connection, table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
        key, units = frozenset(map(folded, target.key)), table_schema.sizes(most_units)
        required = table_schema.required.union(map(folded, target.filled))
        return RowValidator(sink=sink, table=target.table, required=required, key=key, units=units)


TABLES = Tables()


def require_own_table(table_schema: TableSchema, name: str) -> None:
    """Raise Refused for a table of Penstock's own that a restart empties, or that hides rows: a batch would repeat."""
    if table_schema.what != "a table":
        raise Refused(
            f"{name!r} is {table_schema.what}, expected a table on disk: without its rows a batch would be published again.",
            remedy="Make a table on disk of that name, with the same columns, primary key and rows, and start again.",
        )
    _require_no_policy(table_schema, name, "a marker could be hidden, and its batch published again", then="and start again")


def _require_no_policy(table_schema: TableSchema, table: str, why: str, *, then: str) -> None:
    if table_schema.policies:
        policy = table_schema.policies[0]
        raise Refused(
            f"Security policy {policy!r} is in force on table {table!r}: {why}, or kept out.",
            remedy=f"ALTER SECURITY POLICY {policy} WITH (STATE = OFF), {then}.",
        )


def _require_collated_key(table_schema: TableSchema, target: Target, of: Columns) -> None:
    for name in target.key:
        column = table_schema.by_name.get(folded(name))
        if column is not None and column.collation is not None and not column.collation.upper().endswith(("_BIN2", "_BIN2_UTF8")):
            raise Refused(
                f"Column {name!r} of the key of table {target.table!r} has the collation {column.collation}, which takes "
                f"different texts for equal, expected one that ends in _BIN2, such as {sql.EXACT}.",
                remedy=f"ALTER TABLE {of.named} ALTER COLUMN {quoted(name)} … COLLATE {sql.EXACT}.",
            )


def staged_for(schema: "pa.Schema", key: Sequence[str], table_schema: TableSchema) -> list[tuple[str, str]]:
    """Return type and collation of the staging columns: the storage's own, but in the key those of the table, for its index."""
    columns = table_schema.by_name
    return [_staged(field, columns.get(folded(field.name)) if field.name in key else None) for field in schema]


def _staged(field: "pa.Field", column: TableColumn | None) -> tuple[str, str]:
    declared = storage_of(field.type).declared(field.type)
    if column is None or not declared.endswith("(max)"):
        return declared, ""
    return column.declared, f" COLLATE {column.collation}" if column.collation else ""
